package imagestore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	dockerhosts "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/distribution/reference"
	dockerconfig "github.com/docker/cli/cli/config"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RegistryConfig says how registries are reached. Registries on a loopback
// address are tried with TLS (any certificate) and then with plain http;
// all others need https unless HostsDir says otherwise.
type RegistryConfig struct {
	// HostsDir is a folder in containerd's format, one folder a registry with
	// a hosts.toml (mirrors, certificates, plain http, headers). Empty: none.
	HostsDir string
	// DockerConfigDir holds the config.json with credentials and credential
	// helpers that are used when a pull brings none. Empty: $DOCKER_CONFIG or
	// ~/.docker. "-": none.
	DockerConfigDir string
}

// connection is the way to one registry, for one pull.
type connection struct {
	remotes.Resolver
	mu         sync.Mutex
	transports []*patient // guarded by mu
}

// close frees the connections that wait for reuse.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}

// connect prepares to ask the registry of named. Credentials given with the
// pull go only to that registry, never to its mirrors.
func (r RegistryConfig) connect(ctx context.Context, named reference.Named, auth *runtimeapi.AuthConfig) (*connection, error) {
	registry := reference.Domain(named)
	given, err := decodeAuth(auth, registry)
	if err != nil {
		return nil, err
	}
	conn := &connection{}
	shared := &patience{busy: map[string]*busyError{}}
	options := dockerhosts.HostOptions{
		UpdateClient: func(client *http.Client) error {
			if _, done := client.Transport.(*patient); done {
				return nil // a copy of one that was seen
			}
			t := &patient{next: client.Transport, patience: shared}
			client.Transport = t
			conn.mu.Lock()
			defer conn.mu.Unlock()
			conn.transports = append(conn.transports, t)
			return nil
		},
		Credentials: func(host string) (string, string, error) {
			if given != nil {
				if sameRegistry(host, registry) {
					return given.user, given.secret, nil
				}
				return "", "", nil
			}
			return r.keychain(host)
		},
	}
	if r.HostsDir != "" {
		options.HostDir = dockerhosts.HostDirFromRoot(r.HostsDir)
	}
	hosts := withPlainLoopback(dockerhosts.ConfigureHosts(ctx, options))
	if given != nil && given.bearer != "" {
		hosts = withBearer(hosts, registry, given.bearer)
	}
	conn.Resolver = docker.NewResolver(docker.ResolverOptions{
		Hosts:   hosts,
		Headers: http.Header{"User-Agent": {"berth"}},
	})
	return conn, nil
}

// withBearer sends a ready-made registry token to the registry itself.
func withBearer(hosts docker.RegistryHosts, registry, token string) docker.RegistryHosts {
	return func(host string) ([]docker.RegistryHost, error) {
		list, err := hosts(host)
		for i := range list {
			if !sameRegistry(list[i].Host, registry) {
				continue
			}
			list[i].Header = list[i].Header.Clone()
			if list[i].Header == nil {
				list[i].Header = http.Header{}
			}
			list[i].Header.Set("Authorization", "Bearer "+token)
			list[i].Authorizer = nil
		}
		return list, err
	}
}

// keychain looks for credentials in docker's config.json and the credential
// helpers it names. None is no error: the registry may be public.
func (r RegistryConfig) keychain(host string) (user, secret string, err error) {
	if r.DockerConfigDir == "-" {
		return "", "", nil
	}
	config, err := dockerconfig.Load(r.DockerConfigDir)
	if err != nil {
		return "", "", fmt.Errorf("cannot read credentials: %w", err)
	}
	key := host
	if isDockerHub(host) {
		key = "https://index.docker.io/v1/"
	}
	found, err := config.GetAuthConfig(key)
	if err != nil {
		return "", "", fmt.Errorf("cannot get credentials for %s: %w", host, err)
	}
	if found.IdentityToken != "" {
		return "", found.IdentityToken, nil
	}
	return found.Username, found.Password, nil
}

// credentials are those given with a pull. An empty user means that secret is
// an identity (refresh) token; bearer, if set, is sent as it is.
type credentials struct{ user, secret, bearer string }

// decodeAuth reads CRI's credentials. The result is nil if there are none or
// they are meant for another registry.
func decodeAuth(auth *runtimeapi.AuthConfig, registry string) (*credentials, error) {
	if auth == nil {
		return nil, nil
	}
	if server := hostOf(auth.ServerAddress); server != "" && !sameRegistry(server, registry) {
		return nil, nil
	}
	switch {
	case auth.RegistryToken != "":
		return &credentials{bearer: auth.RegistryToken}, nil
	case auth.IdentityToken != "":
		return &credentials{secret: auth.IdentityToken}, nil
	case auth.Username != "":
		return &credentials{user: auth.Username, secret: auth.Password}, nil
	case auth.Auth != "":
		raw, err := base64.StdEncoding.DecodeString(auth.Auth)
		if err != nil {
			raw, err = base64.RawStdEncoding.DecodeString(auth.Auth)
		}
		user, secret, ok := strings.Cut(strings.TrimRight(string(raw), "\x00"), ":")
		if err != nil || !ok {
			return nil, fmt.Errorf("cannot use credentials for %s: %w", registry,
				errors.New(`"auth" must be base64 of user:password`))
		}
		return &credentials{user: user, secret: secret}, nil
	}
	return nil, nil
}

// hostOf takes scheme and path off a server address.
func hostOf(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	host, _, _ := strings.Cut(address, "/")
	return host
}

func sameRegistry(a, b string) bool {
	return strings.EqualFold(a, b) || isDockerHub(a) && isDockerHub(b)
}

func isDockerHub(host string) bool {
	switch host {
	case "docker.io", "index.docker.io", "registry-1.docker.io":
		return true
	}
	return false
}

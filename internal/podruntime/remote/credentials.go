package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/credentialprovider/secrets"
)

// helperTimeout bounds one run of a credential helper.
const helperTimeout = 30 * time.Second

// dockerHub is what docker's configuration calls the registry docker.io.
const dockerHub = "https://index.docker.io/v1/"

// DockerCredentials finds logins in pull secrets and in docker's configuration
// files, where it asks credential helpers too. Files are read anew each time.
// The zero value knows no files.
type DockerCredentials struct {
	// Files are read in order, for example ~/.docker/config.json; a missing one
	// is no error.
	Files []string
}

// dockerConfig is the part of docker's configuration that names helpers.
type dockerConfig struct {
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"`
}

// Lookup returns the logins for an image: those of the secrets, most specific
// first, then those of the files, then those of the helpers.
func (d *DockerCredentials) Lookup(ctx context.Context, image string, pullSecrets []corev1.Secret) ([]Login, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("cannot parse image name %q: %w", image, err)
	}
	files := &credentialprovider.BasicDockerKeyring{}
	var helpers []Login
	var errs []error
	for _, path := range d.Files {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read logins: %w", err)
		}
		auths := struct {
			credentialprovider.DockerConfigJSON
			dockerConfig
		}{}
		if err := json.Unmarshal(data, &auths); err != nil {
			return nil, fmt.Errorf("cannot read logins in %s: %w", path, err)
		}
		files.Add(nil, withLogin(auths.Auths))
		login, err := auths.ask(ctx, reference.Domain(named))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		if login != nil {
			helpers = append(helpers, Login{Auth: login})
		}
	}
	keyring, err := secrets.MakeDockerKeyring(pullSecrets, files)
	if err != nil {
		return nil, fmt.Errorf("cannot read image pull secrets: %w", err)
	}
	var logins []Login
	found, _ := keyring.Lookup(named.Name())
	for _, f := range found {
		login := Login{Auth: &runtimeapi.AuthConfig{
			Username: f.Username, Password: f.Password, Auth: f.Auth, ServerAddress: f.ServerAddress,
			IdentityToken: f.IdentityToken, RegistryToken: f.RegistryToken,
		}}
		if f.Source != nil && f.Source.Secret != nil {
			s := f.Source.Secret
			login.Secret = &SecretLogin{UID: types.UID(s.UID), Namespace: s.Namespace, Name: s.Name, Hash: f.AuthConfigHash}
		}
		logins = append(logins, login)
	}
	logins = append(logins, helpers...)
	if len(logins) > 0 {
		return logins, nil
	}
	return nil, errors.Join(errs...)
}

// withLogin leaves out entries without a login: docker writes such for
// registries whose logins a helper keeps.
func withLogin(all credentialprovider.DockerConfig) credentialprovider.DockerConfig {
	kept := make(credentialprovider.DockerConfig, len(all))
	for registry, entry := range all {
		if entry.Username != "" || entry.Password != "" {
			kept[registry] = entry
		}
	}
	return kept
}

// helperName is what a helper may be called: it becomes part of a command.
var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ask asks the helper for a registry; nil: there is none, or it knows none.
func (c dockerConfig) ask(ctx context.Context, registry string) (*runtimeapi.AuthConfig, error) {
	helper, server := c.CredHelpers[registry], registry
	if helper == "" && registry == "docker.io" {
		server = dockerHub
		helper = c.CredHelpers["index.docker.io"]
	}
	if helper == "" {
		helper = c.CredsStore
	}
	if helper == "" {
		return nil, nil
	}
	if !helperName.MatchString(helper) {
		return nil, fmt.Errorf("%q is no name of a credential helper", helper)
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin = strings.NewReader(server)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if strings.Contains(out.String(), "credentials not found") {
			return nil, nil
		}
		return nil, fmt.Errorf("cannot ask credential helper %s for %s: %w", helper, server, err)
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("cannot read the answer of credential helper %s: %w", helper, err)
	}
	if answer.Username == "<token>" {
		return &runtimeapi.AuthConfig{IdentityToken: answer.Secret, ServerAddress: server}, nil
	}
	return &runtimeapi.AuthConfig{Username: answer.Username, Password: answer.Secret, ServerAddress: server}, nil
}

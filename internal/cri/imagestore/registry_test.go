package imagestore

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

func TestCredentials(t *testing.T) {
	const user, password = "ann", "s3cret"
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	built := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))
	for _, kind := range []images.AuthKind{images.BasicAuth, images.BearerAuth} {
		registry := images.NewRegistry(t, images.RegistryOptions{Auth: kind, User: user, Password: password})
		ref := registry.Push("private/app:v1", built)
		helperDir := t.TempDir()
		helper := fmt.Sprintf("#!/bin/sh\necho '{\"ServerURL\":\"x\",\"Username\":%q,\"Secret\":%q}'\n", user, password)
		if err := os.WriteFile(filepath.Join(helperDir, "docker-credential-test"), []byte(helper), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", helperDir+":"+os.Getenv("PATH"))
		cases := map[string]struct {
			auth   *runtimeapi.AuthConfig
			config string // docker config.json
			want   error
			only   images.AuthKind // 0: both
		}{
			"none":                        {want: ErrDenied},
			"user and password":           {auth: &runtimeapi.AuthConfig{Username: user, Password: password}},
			"for this server":             {auth: &runtimeapi.AuthConfig{Username: user, Password: password, ServerAddress: "http://" + registry.Host + "/v2/"}},
			"for another server":          {auth: &runtimeapi.AuthConfig{Username: user, Password: password, ServerAddress: "example.com"}, want: ErrDenied},
			"wrong password":              {auth: &runtimeapi.AuthConfig{Username: user, Password: "no"}, want: ErrDenied},
			"auth field":                  {auth: &runtimeapi.AuthConfig{Auth: basic}},
			"config.json":                 {config: fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, registry.Host, basic)},
			"config.json of another host": {config: fmt.Sprintf(`{"auths":{"example.com":{"auth":%q}}}`, basic), want: ErrDenied},
			"credential helper":           {config: fmt.Sprintf(`{"credHelpers":{%q:"test"}}`, registry.Host)},
			"identity token":              {auth: &runtimeapi.AuthConfig{IdentityToken: password}, only: images.BearerAuth},
			"registry token":              {auth: &runtimeapi.AuthConfig{RegistryToken: registry.Token()}, only: images.BearerAuth},
		}
		for name, c := range cases {
			if c.only != 0 && c.only != kind {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s", kind, name), func(t *testing.T) {
				s := open(t, func(cfg *Config) {
					if c.config != "" {
						dir := t.TempDir()
						if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(c.config), 0o600); err != nil {
							t.Fatal(err)
						}
						cfg.Registries.DockerConfigDir = dir
					}
				})
				_, err := s.Pull(t.Context(), ref, c.auth, nil)
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if err != nil && strings.Contains(err.Error(), password) {
					t.Errorf("the error shows the password: %v", err)
				}
			})
		}
	}
}

func TestUnusableAuthFieldSaysWhy(t *testing.T) {
	s := open(t, nil)
	_, err := s.Pull(t.Context(), "127.0.0.1:1/x", &runtimeapi.AuthConfig{Auth: "%%%"}, nil)
	if err == nil || !strings.Contains(err.Error(), "base64 of user:password") {
		t.Errorf("got %v", err)
	}
}

// hosts writes a hosts.toml for registry and gives its folder.
func hosts(t *testing.T, registry, text string) string {
	t.Helper()
	dir := t.TempDir()
	sub := filepath.Join(dir, registry)
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sub, "hosts.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMirrorGetsNoCredentialsOfTheRegistry(t *testing.T) {
	mirror := images.NewRegistry(t, images.RegistryOptions{Auth: images.BasicAuth, User: "ann", Password: "s3cret"})
	mirror.Push("team/app:v1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"}))))
	s := open(t, func(c *Config) {
		c.Registries.HostsDir = hosts(t, "registry.example.com", fmt.Sprintf(
			"server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", "http://127.0.0.1:1", "http://"+mirror.Host))
	})
	_, err := s.Pull(t.Context(), "registry.example.com/team/app:v1", &runtimeapi.AuthConfig{Username: "ann", Password: "s3cret"}, nil)
	if err == nil {
		t.Error("the mirror was shown the credentials")
	}
}

func TestMirrorIsAskedFirst(t *testing.T) {
	mirror := images.NewRegistry(t, images.RegistryOptions{})
	built := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))
	mirror.Push("team/app:v1", built)
	dead := "http://127.0.0.1:1"
	s := open(t, func(c *Config) {
		c.Registries.HostsDir = hosts(t, "registry.example.com", fmt.Sprintf(
			"server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n",
			dead, dead, "http://"+mirror.Host))
	})
	img, err := s.Pull(t.Context(), "registry.example.com/team/app:v1", &runtimeapi.AuthConfig{Username: "u", Password: "p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(img.Tags) != 1 || img.Tags[0] != "registry.example.com/team/app:v1" {
		t.Errorf("tags are %v", img.Tags)
	}
}

func TestCertificateOfARegistry(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{TLS: true})
	built := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))
	registry.Push("app:v1", built)
	// Under a name that is not loopback, so that the certificate counts.
	toml := func(ca string) string {
		return fmt.Sprintf("server = %q\n[host.%q]\n%s\n", "https://"+registry.Host, "https://"+registry.Host, ca)
	}
	trusting := open(t, func(c *Config) {
		c.Registries.HostsDir = hosts(t, "secure.example.com", toml(fmt.Sprintf("ca = %q", registry.CAFile)))
	})
	pull(t, trusting, "secure.example.com/app:v1")
	strict := open(t, func(c *Config) {
		c.Registries.HostsDir = hosts(t, "secure.example.com", toml("skip_verify = false"))
	})
	if _, err := strict.Pull(t.Context(), "secure.example.com/app:v1", nil, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate was accepted, or the error is unclear: %v", err)
	}
}

package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// recorded collects events.
type recorded struct{ events []string }

func (r *recorded) Record(ref corev1.ObjectReference, kind, reason, message string) {
	r.events = append(r.events, fmt.Sprintf("%s %s %s %s", kind, reason, ref.FieldPath, message))
}

func TestPullPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy  corev1.PullPolicy
		present bool
		fails   error
		pulls   int
		reason  string
		event   string
	}{
		"Always pulls what is there":         {policy: corev1.PullAlways, present: true, pulls: 1, event: "Successfully pulled"},
		"Always fails with the registry":     {policy: corev1.PullAlways, present: true, pulls: 1, fails: errors.New("boom"), reason: "ErrImagePull", event: "Pulling image"},
		"IfNotPresent takes what is there":   {policy: corev1.PullIfNotPresent, present: true, event: "already present"},
		"IfNotPresent pulls what is missing": {policy: corev1.PullIfNotPresent, pulls: 1, event: "Image size: 4711 bytes."},
		"Never takes what is there":          {policy: corev1.PullNever, present: true, event: "already present"},
		"Never pulls nothing":                {policy: corev1.PullNever, reason: "ErrImageNeverPull"},
		"a registry that cannot be reached": {policy: corev1.PullAlways, pulls: 1, reason: "RegistryUnavailable", event: "Pulling image",
			fails: fmt.Errorf("cannot get manifest: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})},
		"a name that cannot be resolved": {policy: corev1.PullAlways, pulls: 1, reason: "RegistryUnavailable", event: "Pulling image",
			fails: &net.DNSError{Name: "registry.example", Err: "no such host"}},
		"a registry that a remote runtime cannot reach": {policy: corev1.PullAlways, pulls: 1, reason: "RegistryUnavailable", event: "Pulling image",
			fails: errors.New("rpc error: RegistryUnavailable: 503")},
		"a wrong signature": {policy: corev1.PullAlways, pulls: 1, reason: "SignatureValidationFailed", event: "Pulling image",
			fails: errors.New("rpc error: SignatureValidationFailed: no")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCRI()
			f.onPull = func(context.Context, string, *runtimeapi.AuthConfig) error { return c.fails }
			if c.present {
				f.images["registry.example/app:latest"] = &runtimeapi.Image{Id: "sha256:present"}
			}
			events := &recorded{}
			r := onFake(t, f, func(cfg *Config) { cfg.Recorder = events })
			pod := simplePod()
			pod.Spec.Containers[0].ImagePullPolicy = c.policy
			result, err := r.Do(t.Context(), pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"})
			var failed *lifecycle.Failed
			switch {
			case c.reason == "" && (err != nil || !strings.HasPrefix(result.ImageRef, "sha256:")):
				t.Errorf("got %q, %v", result.ImageRef, err)
			case c.reason != "" && (!errors.As(err, &failed) || failed.Reason != c.reason || !strings.Contains(failed.Message, "registry.example/app")):
				t.Errorf("got %v, want %s", err, c.reason)
			}
			if n := f.count("PullImage"); n != c.pulls {
				t.Errorf("pulled %d times", n)
			}
			if c.event != "" && (len(events.events) == 0 || !strings.Contains(events.events[len(events.events)-1], c.event)) {
				t.Errorf("events %q", events.events)
			}
		})
	}
}

// Images of this machine are never pulled, whatever the policy.
func TestLocalImagesAreNotPulled(t *testing.T) {
	f := newFakeCRI()
	made := 0
	r := onFake(t, f, func(cfg *Config) {
		cfg.MakeLocal = func(_ context.Context, image string) error {
			if image == "berth.local/demo:latest" {
				made++
				f.change(func() { f.images[image] = &runtimeapi.Image{Id: "sha256:demo"} })
			}
			return nil
		}
	})
	pod := simplePod()
	pull := func(image string) (string, error) {
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, corev1.PullAlways
		result, err := r.Do(t.Context(), pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"})
		return result.ImageRef, err
	}
	if ref, err := pull("berth.local/demo"); err != nil || ref != "sha256:demo" || made != 1 {
		t.Errorf("got %q, %v, made %d times", ref, err, made)
	}
	var failed *lifecycle.Failed
	if _, err := pull("berth.local/other:1"); !errors.As(err, &failed) || failed.Reason != "ErrImagePull" || !strings.Contains(failed.Message, "import it first") {
		t.Errorf("got %v", err)
	}
	if n := f.count("PullImage"); n != 0 {
		t.Errorf("pulled %d times", n)
	}
}

// Each login is tried until one is good.
func TestLoginsAreTriedInTurn(t *testing.T) {
	f := newFakeCRI()
	var tried []string
	f.onPull = func(_ context.Context, _ string, auth *runtimeapi.AuthConfig) error {
		tried = append(tried, auth.GetUsername())
		switch auth.GetUsername() {
		case "good":
			return nil
		case "worse":
			return errors.New("denied\nfor good")
		}
		return errors.New("denied")
	}
	r := onFake(t, f, func(cfg *Config) { cfg.Credentials = logins{"bad", "good", "unused"} })
	pod := simplePod()
	pull := lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"}
	if _, err := r.Do(t.Context(), pod, pull); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tried, []string{"bad", "good"}) {
		t.Errorf("tried %q", tried)
	}
	r = onFake(t, f, func(cfg *Config) { cfg.Credentials = logins{"bad", "worse", "also bad"} })
	f.change(func() { clear(f.images) })
	want := `cannot pull image "registry.example/app": denied; denied; for good`
	var failed *lifecycle.Failed
	if _, err := r.Do(t.Context(), pod, pull); !errors.As(err, &failed) || failed.Message != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

type logins []string

func (l logins) Lookup(context.Context, string, []corev1.Secret) (all []Login, err error) {
	for _, name := range l {
		all = append(all, Login{Auth: &runtimeapi.AuthConfig{Username: name}})
	}
	return all, nil
}

// No more than MaxPulls go on at once, and one that waits can be cancelled.
func TestPullsAtOnceAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCRI()
		var now, most atomic.Int64
		f.onPull = func(ctx context.Context, _ string, _ *runtimeapi.AuthConfig) error {
			defer now.Add(-1)
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r := onFake(t, f, func(cfg *Config) { cfg.MaxPulls = 2 })
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 5 {
			pod := simplePod()
			pod.Spec.Containers[0].Image = fmt.Sprintf("registry.example/app:%d", i)
			go func() {
				_, err := r.Do(ctx, pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"})
				ended <- err
			}()
		}
		time.Sleep(90 * time.Second) // two are done, two go on, one waits
		cancel()
		good := 0
		for range 5 {
			switch err := <-ended; {
			case err == nil:
				good++
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		}
		if good != 2 || most.Load() != 2 {
			t.Errorf("%d pulled, %d at once", good, most.Load())
		}
	})
}

func TestLoginsAreFound(t *testing.T) {
	dir := t.TempDir()
	basic := func(user string) string { return base64.StdEncoding.EncodeToString([]byte(user + ":secret")) }
	file := filepath.Join(dir, "config.json")
	config := fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}, "https://index.docker.io/v1/": {"auth": %q}, "helped.example": {}},
		"credHelpers": {"helped.example": "berthtest", "empty.example": "berthtest", "evil.example": "../../bin/sh"}}`, basic("file"), basic("hub"))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	helper := `#!/bin/sh
read server
case "$server" in
helped.example) echo '{"Username": "helper", "Secret": "s"}' ;;
*) echo 'credentials not found in native keychain'; exit 1 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-berthtest"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	secret := func(name, json string) corev1.Secret {
		return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(json)}}
	}
	broad := secret("broad", fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}}}`, basic("broad")))
	exact := secret("exact", fmt.Sprintf(`{"auths": {"registry.example/team": {"auth": %q}}}`, basic("exact")))
	d := &DockerCredentials{Files: []string{filepath.Join(dir, "absent.json"), file}}
	for name, c := range map[string]struct {
		image   string
		secrets []corev1.Secret
		want    []string
	}{
		"a file":                      {"registry.example/app:1", nil, []string{"file"}},
		"docker hub":                  {"busybox", nil, []string{"hub"}},
		"secrets before files":        {"registry.example/app", []corev1.Secret{broad}, []string{"broad", "file"}},
		"the closest first":           {"registry.example/team/app", []corev1.Secret{broad, exact}, []string{"exact", "broad", "file"}},
		"a helper":                    {"helped.example/app", nil, []string{"helper"}},
		"a helper that knows nothing": {"empty.example/app", nil, nil},
		"a registry nobody knows":     {"other.example/app", []corev1.Secret{broad}, nil},
	} {
		found, err := d.Lookup(t.Context(), c.image, c.secrets)
		var users []string
		for _, f := range found {
			users = append(users, f.Auth.Username)
		}
		if err != nil || !cmp.Equal(users, c.want) {
			t.Errorf("%s: found %q, %v; want %q", name, users, err, c.want)
		}
	}
	if _, err := d.Lookup(t.Context(), "evil.example/app", nil); err == nil || !strings.Contains(err.Error(), "no name of a credential helper") {
		t.Errorf("a helper outside of PATH: %v", err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lookup(t.Context(), "registry.example/app", nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a torn file: %v", err)
	}
}

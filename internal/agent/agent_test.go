package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/manifest"
)

// start brings up an agent on its own root, with programs from bin.
func start(t *testing.T, root string) (*Agent, func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces, mounts, cgroups and networks")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := New(t.Context(), Config{
		Root: root, ShimBinary: filepath.Join(bin, "berth-shim"), DemoBinary: filepath.Join(bin, "berth-demo"), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := a.cfg
	t.Cleanup(func() { cleanUp(t, cfg) })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return a, func() {
		cancel()
		if err := errors.Join(<-ended, a.Close()); err != nil {
			t.Error(err)
		}
	}
}

// cleanUp removes all that agents of the root made, and checks that it did.
func cleanUp(t *testing.T, cfg Config) {
	t.Helper()
	ctx := context.Background()
	a, err := New(ctx, cfg)
	if err != nil {
		t.Error(err)
		return
	}
	if left, err := a.Cleanup(ctx); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	for _, dir := range []string{cfg.Root, cfg.Run} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there after the cleanup", dir)
		}
	}
	if _, err := net.InterfaceByName(cfg.Bridge); err == nil {
		t.Errorf("bridge %s is still there after the cleanup", cfg.Bridge)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*" + cfg.CgroupRoot)
	if err != nil || len(left) > 0 {
		t.Errorf("cgroups are left: %v %v", left, err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// wait returns when a status of the pod satisfies ok.
func wait(t *testing.T, a *Agent, ref Ref, ok func(Update) bool) Update {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got Update
	found := errors.New("found")
	err := a.Watch(ctx, func(u Update, _ int) error {
		if u.Pod.UID == ref.UID && ok(u) {
			got = u
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Fatalf("pod %s: %v; last status %+v", ref.Name, err, a.feed.status(ref.UID))
	}
	return got
}

func ready(u Update) bool {
	if u.Status == nil {
		return false
	}
	for _, c := range u.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

const hello = `
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: berth.local/demo:latest
    args: [serve]
    readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}
`

func TestPodBecomesReadyAnswersAndGoes(t *testing.T) {
	a, stop := start(t, t.TempDir())
	defer stop()
	set, problems := manifest.Decode("hello.yaml", []byte(hello))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	refs, err := a.Apply(t.Context(), Objects{Pods: set.Pods})
	if err != nil {
		t.Fatal(err)
	}
	u := wait(t, a, refs[0], ready)
	t.Logf("ready after %s", time.Since(began))
	resp, err := http.Get("http://" + u.Status.PodIP + ":8080/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		t.Fatalf("got %s %q", resp.Status, body)
	}
	began = time.Now()
	a.DeleteUID(refs[0].UID, nil)
	wait(t, a, refs[0], func(u Update) bool { return u.Kind == GoneUpdate })
	t.Logf("gone after %s", time.Since(began))
}

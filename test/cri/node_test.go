package cri

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/testutil/leak"
)

// patience is how long anything that must happen may take on a busy machine.
const patience = 2 * time.Minute

// node is a `berth cri` under test.
type node struct {
	tools        tools
	endpoint     string // of the socket, as critest and crictl want it
	root, runDir string
	config       string // crictl's, so that it does not look for the machine's
	hosts        string // folder that leads berth to the registry
	log          *os.File
	process      *exec.Cmd
	ended        chan struct{} // closed when the process has ended
	err          error         // of the process; after ended
}

// newNode is a node for one test, with a registry that has the images of critest.
// When the test ends, everything must be as it was before.
func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs real containers")
	}
	if testing.Short() {
		t.Skip("runs real containers")
	}
	tools, err := findTools()
	if err != nil {
		t.Fatal(err)
	}
	hosts := serveImages(t, tools)
	before := leak.Take(t, leak.Scope{})
	n := &node{
		tools: tools, endpoint: "unix:///run/berth-cri.sock", root: filepath.Join(t.TempDir(), "root"), runDir: "/run/berth-cri",
		config: filepath.Join(t.TempDir(), "crictl.yaml"), hosts: hosts,
	}
	if err := os.MkdirAll(n.root, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		t.Fatal(err)
	}
	for dir := n.root; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // containers' users pass through it
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(n.config, []byte("runtime-endpoint: "+n.endpoint+"\nimage-endpoint: "+n.endpoint+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n.log, err = os.Create(filepath.Join(t.TempDir(), "berth.log")); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	t.Cleanup(func() {
		n.stop(t)
		n.tellLog(t)
		n.log.Close()
		before.NoMore(t, leak.Scope{Dirs: []string{n.runDir}})
	})
	n.waitUntilServing(t)
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	n.ended = make(chan struct{})
	n.process = exec.Command("../../bin/berth", "cri", "--listen", n.endpoint, "--root", n.root, "--run", n.runDir,
		"--registries-dir", n.hosts, "--log-level", "debug")
	n.process.Stdout, n.process.Stderr = n.log, n.log
	if err := n.process.Start(); err != nil {
		t.Fatalf("cannot start berth (make build makes it): %v", err)
	}
	go func() {
		n.err = n.process.Wait()
		close(n.ended)
	}()
}

func (n *node) waitUntilServing(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	for {
		_, err := n.crictl(t, "version").CombinedOutput()
		if err == nil {
			return
		}
		select {
		case <-n.ended:
			t.Fatalf("berth cri ended: %v", n.err)
		case <-deadline:
			t.Fatalf("berth cri does not answer: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kill ends the process, which learns nothing of it. What it made stays.
func (n *node) kill(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-n.ended
}

// stop ends the process and removes what it made.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-n.ended
	if n.err != nil {
		t.Errorf("berth cri ended with: %v", n.err)
	}
	out, err := exec.Command("../../bin/berth", "cleanup", "--force", "--root", n.root, "--run", n.runDir).CombinedOutput()
	if err != nil {
		t.Errorf("cannot clean up after berth cri: %v\n%s", err, out)
	}
}

// tellLog shows the end of berth's log if the test has failed.
func (n *node) tellLog(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	b, err := os.ReadFile(n.log.Name())
	if err != nil {
		t.Log(err)
	}
	const most = 20_000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	t.Logf("the log of berth cri:\n%s", b)
}

// crictl is a call of crictl that ends with the test, or before it.
func (n *node) crictl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), n.tools.crictl(), append([]string{"--config", n.config, "--timeout", "60s"}, args...)...)
}

// call runs crictl and returns what it printed, without the last newline.
func (n *node) call(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.tools.crictl(), append([]string{"--config", n.config, "--timeout", "60s"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("crictl %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n")
}

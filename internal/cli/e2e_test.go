package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/home"
)

// asBerth makes this test binary behave as berth.
const asBerth = "BERTH_TEST_AS_BERTH"

func TestMain(m *testing.M) {
	if os.Getenv(asBerth) != "" {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// node is a root of its own for one test, cleaned up at its end.
type node struct {
	t    *testing.T
	root string
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces, mounts, cgroups and networks")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"berth", "berth-shim", "berth-demo"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Fatalf("%v: run make build first", err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	n := &node{t: t, root: filepath.Join(t.TempDir(), "root")}
	t.Cleanup(n.cleanup)
	return n
}

// cleanup removes all and checks that nothing is left.
func (n *node) cleanup() {
	out, code := n.berth("cleanup", "--force")
	if code != 0 {
		n.t.Errorf("berth cleanup ends with %d: %s", code, out)
	}
	for _, left := range n.leftovers() {
		n.t.Errorf("left behind: %s", left)
	}
}

// home is the root and what belongs to it.
func (n *node) home() home.Home {
	n.t.Helper()
	h, err := home.Find(n.root, "")
	if err != nil {
		n.t.Fatal(err)
	}
	return h
}

// leftovers lists what is there that names the root.
func (n *node) leftovers() []string {
	h := n.home()
	run, mark := h.Run, h.Mark
	var left []string
	for _, dir := range []string{n.root, run} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			left = append(left, dir)
		}
	}
	if _, err := net.InterfaceByName("berth" + mark); err == nil {
		left = append(left, "bridge berth"+mark)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/berth" + mark)
	more, _ := filepath.Glob("/sys/fs/cgroup/berth" + mark)
	left = append(left, slices.Concat(groups, more)...)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, n.root) || strings.Contains(line, run+"/") {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		line, err := os.ReadFile(path)
		if err == nil && (bytes.Contains(line, []byte(n.root)) || bytes.Contains(line, []byte(run+"/"))) {
			left = append(left, path+": "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return left
}

// program is what the tests run as berth: this binary itself, but bin/berth where
// this one is built to find races: that takes a second for each start. With
// BERTH_TEST_SELF=1 it is run all the same.
func program() string {
	if raceBuild && os.Getenv("BERTH_TEST_SELF") == "" {
		return "../../bin/berth"
	}
	return os.Args[0]
}

// command prepares berth with the node's root.
func (n *node) command(args ...string) *exec.Cmd {
	return bare("", append(slices.Clone(args[:1]), append([]string{"--root", n.root}, args[1:]...)...)...)
}

// bare prepares berth in a folder (empty: this one) with these arguments alone.
func bare(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(program(), args...)
	if abs, err := filepath.Abs(cmd.Path); err == nil {
		cmd.Path = abs
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asBerth+"=1")
	return cmd
}

// berth runs one command to its end.
func (n *node) berth(args ...string) (output string, code int) {
	n.t.Helper()
	return n.finish(n.command(args...))
}

// finish runs a command to its end.
func (n *node) finish(cmd *exec.Cmd) (output string, code int) {
	n.t.Helper()
	args := cmd.Args[1:]
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// What a background agent inherits must not keep us waiting.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// must is berth for commands that have to succeed.
func (n *node) must(args ...string) string {
	n.t.Helper()
	out, code := n.berth(args...)
	if code != 0 {
		n.t.Fatalf("berth %s ends with %d:\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// eventually runs a command until its output contains a text: pods without a
// readiness probe are ready before they have said anything.
func (n *node) eventually(text string, args ...string) {
	n.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		out := n.must(args...)
		if strings.Contains(out, text) {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("berth %s never shows %q, but:\n%s", strings.Join(args, " "), text, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// file writes a manifest and returns its path.
func (n *node) file(text string) string {
	n.t.Helper()
	f, err := os.CreateTemp(n.t.TempDir(), "*.yaml")
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		n.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		n.t.Fatal(err)
	}
	return f.Name()
}

// pod is a manifest of a pod with one container, which runs berth-demo.
func pod(name, policy string, grace int, args ...string) string {
	quoted, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: %d
  containers:
  - name: main
    image: berth.local/demo:latest
    args: %s
`, name, policy, grace, quoted)
}

// status is that of a pod in berth ps.
func (n *node) status(name string) *corev1.PodStatus {
	n.t.Helper()
	out := n.must("ps", "-o", "json")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		n.t.Fatalf("%v in %s", err, out)
	}
	for _, p := range list.Items {
		if p.Name == name {
			return &p.Status
		}
	}
	return nil
}

// running is a berth that goes on while the test does.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu      sync.Mutex
	out     []string
	changed chan struct{}
}

// start begins a command that goes on.
func (n *node) start(args ...string) *running {
	n.t.Helper()
	r := &running{t: n.t, cmd: n.command(args...), done: make(chan struct{}), changed: make(chan struct{})}
	pr, pw, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = pw, pw
	if err := r.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	pw.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		in := bufio.NewReader(pr)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				r.add(strings.TrimSuffix(line, "\n"))
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					r.add(err.Error())
				}
				return
			}
		}
	}()
	go func() {
		_ = r.cmd.Wait()
		// A background agent may keep the pipe.
		select {
		case <-read:
		case <-time.After(2 * time.Second):
		}
		pr.Close()
		<-read
		close(r.done)
	}()
	n.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
	})
	return r
}

func (r *running) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = append(r.out, line)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *running) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.out)
}

// await returns when a line matches.
func (r *running) await(pattern string) {
	r.t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(30 * time.Second)
	for {
		r.mu.Lock()
		found, changed := slices.ContainsFunc(r.out, re.MatchString), r.changed
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-r.done:
			if !slices.ContainsFunc(r.lines(), re.MatchString) {
				r.t.Fatalf("berth ended (%s) without a line like %q:\n%s", r.cmd.ProcessState, pattern, strings.Join(r.lines(), "\n"))
			}
			return
		case <-limit:
			r.t.Fatalf("no line like %q in:\n%s", pattern, strings.Join(r.lines(), "\n"))
		}
	}
}

func (r *running) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// wait returns the exit code.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(60 * time.Second):
		r.t.Fatalf("berth does not end; it said:\n%s", strings.Join(r.lines(), "\n"))
	}
	return r.cmd.ProcessState.ExitCode()
}

// numbers are those at the ends of log lines of berth-demo print-lines.
func numbers(lines []string) map[string]int {
	seen := make(map[string]int)
	for _, l := range lines {
		if m := numbered.FindStringSubmatch(l); m != nil {
			seen[m[1]]++
		}
	}
	return seen
}

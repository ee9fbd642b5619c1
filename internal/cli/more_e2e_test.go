package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // client-go still takes this one
	"k8s.io/client-go/tools/portforward"
	spdydialer "k8s.io/client-go/transport/spdy"

	"github.com/berth-run/berth/internal/socket"
)

// onTerminal starts a command on a terminal of its own and returns its screen's
// text so far, and the terminal.
func (n *node) onTerminal(args ...string) (r *running, tty console.Console, text func() string) {
	n.t.Helper()
	tty, path, err := console.NewPty()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := tty.Resize(console.WinSize{Width: 80, Height: 24}); err != nil {
		n.t.Fatal(err)
	}
	side, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	r = &running{t: n.t, cmd: n.command(args...), done: make(chan struct{}), changed: make(chan struct{})}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = side, side, side
	r.cmd.Env = append(r.cmd.Env, "TERM=xterm-256color")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := r.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	side.Close()
	read := make(chan struct{})
	var all bytes.Buffer
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			k, err := tty.Read(buf)
			r.mu.Lock()
			all.Write(buf[:k])
			r.out = strings.Split(all.String(), "\n")
			close(r.changed)
			r.changed = make(chan struct{})
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = r.cmd.Wait()
		select {
		case <-read:
		case <-time.After(time.Second):
		}
		close(r.done)
	}()
	n.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		tty.Close()
		<-read
	})
	return r, tty, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return all.String()
	}
}

func TestLiveViewOnATerminal(t *testing.T) {
	n := newNode(t)
	r, tty, text := n.onTerminal("run", n.file(pod("web", "Always", 5, "serve")+pod("job", "Never", 1, "exit", "3", "--after", "300ms")))
	r.await(`web.*ready`)
	r.await(`exit code 3`)
	r.await(`web/main.*serving`)
	if err := tty.Resize(console.WinSize{Width: 50, Height: 10}); err != nil {
		t.Fatal(err)
	}
	// Ctrl-C typed on the terminal.
	if _, err := tty.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	out := text()
	if !strings.Contains(out, "\x1b[31m") {
		t.Error("no colour is shown")
	}
	if strings.LastIndex(out, "\x1b[?25h") < strings.LastIndex(out, "\x1b[?25l") {
		t.Error("the cursor stays hidden")
	}
}

func TestShellOnATerminal(t *testing.T) {
	n := newNode(t)
	n.must("run", "--until", "ready", n.file(pod("web", "Always", 1, "serve")))
	r, tty, text := n.onTerminal("exec", "-it", "web", "--", "/berth-demo", "cat")
	// Once the local terminal is raw, what is typed belongs to the container.
	for {
		mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if mode.Lflag&unix.ICANON == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := tty.Write([]byte("echoed by the terminal and by cat\n\x04")); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := strings.Count(text(), "echoed by the terminal and by cat\r\n"); got != 2 {
		t.Errorf("the text is there %d times: %q", got, text())
	}
	n.must("stop", "web")
}

// A profile is looked for below the root, wherever the command is typed.
func TestLocalhostSeccompProfile(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.home().Seccomp(), 0o755); err != nil {
		t.Fatal(err)
	}
	profile := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(filepath.Join(n.home().Seccomp(), "mute.json"), []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	text := `
apiVersion: v1
kind: Pod
metadata: {name: mute}
spec:
  restartPolicy: Never
  securityContext: {seccompProfile: {type: Localhost, localhostProfile: FILE}}
  containers: [{name: main, image: berth.local/demo, args: [serve]}]
`
	out, code := n.berth("run", n.file(strings.Replace(text, "FILE", "mute.json", 1)))
	if code != 1 || !strings.Contains(out, "operation not permitted") {
		t.Errorf("without sockets the server ends with %d: %s", code, out)
	}
	out, _ = n.berth("run", "--timeout", "3s", n.file(strings.Replace(strings.Replace(text, "FILE", "none.json", 1), "name: mute", "name: none", 1)))
	if want := filepath.Join(n.home().Seccomp(), "none.json"); !strings.Contains(out, want) {
		t.Errorf("without the profile it does not name %s: %s", want, out)
	}
	if out := n.must("cleanup", "--force"); !strings.Contains(out, "left "+n.home().Seccomp()) {
		t.Errorf("cleanup says: %s", out)
	}
	if err := os.RemoveAll(n.root); err != nil {
		t.Fatal(err)
	}
}

func TestPortForwardAsKubectlDoesIt(t *testing.T) {
	n := newNode(t)
	n.must("run", "--until", "ready", n.file(pod("web", "Always", 1, "serve")))
	n.eventually("serving", "logs", "web")
	path := n.home().Socket()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, path) }
	transport, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{DialContext: dial}})
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdydialer.NewDialer(transport, &http.Client{Transport: transport}, http.MethodPost,
		&url.URL{Scheme: "http", Host: "berth", Path: "/portForward/default/web"})
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/hostname", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if strings.TrimSpace(string(body)) != "web" {
		t.Errorf("through the port comes %q", body)
	}
	http.DefaultClient.CloseIdleConnections()
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	n.must("stop", "web")
}

func TestAReaderThatLeavesStopsThePods(t *testing.T) {
	n := newNode(t)
	cmd := n.command("run", n.file(pod("chatty", "Always", 1, "print-lines", "0", "--rate", "100")))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d, want %d", code, 128+int(syscall.SIGPIPE))
	}
	if out := n.must("ps"); out != "no pods\n" {
		t.Errorf("there are still:\n%s", out)
	}
}

// anonymous is the memory of a process that is its own, in KiB.
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Anonymous:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not say")
	return 0
}

func TestAFloodOfLogLinesCostsNoMemory(t *testing.T) {
	n := newNode(t)
	cmd := n.command("run", n.file(pod("flood", "Never", 1, "print-lines", "1000000", "--size", "200")))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	most, read := 0, 0
	buf := make([]byte, 1<<20)
	for i := 0; ; i++ {
		k, err := out.Read(buf)
		read += k
		if i%200 == 0 && err == nil {
			most = max(most, anonymous(t, cmd.Process.Pid))
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	// 200 MB are written; rotation keeps 50 MB of them for who is slower.
	if read < 40<<20 {
		t.Errorf("only %d bytes came out", read)
	}
	t.Logf("%d MB came out, with %d MiB of anonymous memory at most", read/1000000, most>>10)
	if most > 100<<10 {
		t.Errorf("berth takes %d MiB", most>>10)
	}
}

func TestCommandsAfterTheAgentWasKilled(t *testing.T) {
	n := newNode(t)
	r := n.start("run", n.file(pod("web", "Always", 2, "serve")))
	r.await(`^web: ready`)
	r.signal(syscall.SIGKILL)
	r.wait()
	n.eventually("serving", "logs", "web")
	if out := n.must("exec", "web", "--", "/berth-demo", "hostname"); out != "web\n" {
		t.Errorf("exec: %q", out)
	}
	// The first of them left an agent in the background.
	if out, code := n.berth("cleanup", "-y"); code != 1 {
		t.Errorf("cleanup ends with %d: %s", code, out)
	}
	n.must("rm", "--force", "web")
}

func TestImages(t *testing.T) {
	n := newNode(t)
	n.must("run", n.file(pod("job", "Never", 1, "true"))) // makes the root
	if out := n.must("image", "ls"); !strings.Contains(out, "berth.local/demo:latest") {
		t.Errorf("the demo image is not listed:\n%s", out)
	}
	for _, args := range [][]string{{"pull", "127.0.0.1:1/none:1"}, {"import", "/no/such/file"}, {"rm", "none:1"}} {
		if out, code := n.berth(append([]string{"image"}, args...)...); code != 1 || !strings.HasPrefix(out, "berth: ") {
			t.Errorf("image %v ends with %d: %s", args, code, out)
		}
	}
	n.must("image", "prune", "--all")
	if out := n.must("image", "ls", "-o", "json"); !strings.Contains(out, `"pinned": true`) {
		t.Errorf("the demo image is gone:\n%s", out)
	}
}

func TestCompletionKnowsPodsAndContainers(t *testing.T) {
	n := newNode(t)
	n.must("run", "--detach", n.file(pod("web", "Always", 1, "serve")))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", ""}, "web\n"},
		{[]string{"exec", "web", "--container", ""}, "main\n"},
		{[]string{"stop", "w"}, "web\n"},
		{[]string{"describe", ""}, "web\n"},
	} {
		args := append([]string{"__complete", c.args[0], "--root", n.root}, c.args[1:]...)
		cmd := n.command("version")
		cmd.Args = append(cmd.Args[:1], args...)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("%v: %v, %q", c.args, err, out.String())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := n.must("completion", shell); !strings.Contains(out, "berth") {
			t.Errorf("the script for %s is %q", shell, out)
		}
	}
	n.must("stop", "web")
}

func TestForcedCleanupUnderARunThatGoesOn(t *testing.T) {
	n := newNode(t)
	first := n.start("run", n.file(pod("one", "Always", 2, "serve")))
	first.await(`^one: ready`)
	second := n.start("run", n.file(pod("two", "Always", 2, "serve")))
	second.await(`^two: ready`)
	n.must("cleanup", "--force")
	if code := first.wait(); code != 1 {
		t.Errorf("the run with the agent ends with %d", code)
	}
	first.await("asked to leave")
	if code := second.wait(); code != 1 {
		t.Errorf("the other run ends with %d", code)
	}
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

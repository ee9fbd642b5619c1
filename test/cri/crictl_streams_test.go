package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/console"
)

// exec1 runs a command in the pod's container and returns what it printed.
func (n *node) exec1(t *testing.T, p pod, command ...string) string {
	t.Helper()
	return n.call(t, append([]string{"exec", p.containerID}, command...)...)
}

func (n *node) exec(t *testing.T, web pod) {
	expect(t, "output of exec", n.exec1(t, web, "echo", "a", "b c"), "a b c")
	expect(t, "output of exec -s", strings.TrimSpace(n.call(t, "exec", "-s", web.containerID, "echo", "from inside")), "from inside")

	var exit *exec.ExitError
	out, err := n.crictl(t, "exec", web.containerID, "sh", "-c", "echo out; echo err >&2; exit 3").CombinedOutput()
	if !errors.As(err, &exit) || !strings.Contains(string(out), "exit code 3") || !strings.Contains(string(out), "out\n") || !strings.Contains(string(out), "err\n") {
		t.Errorf("a command that fails: %v, %s", err, out)
	}
	if out, err := n.crictl(t, "exec", "-s", web.containerID, "sh", "-c", "exit 3").CombinedOutput(); !errors.As(err, &exit) {
		t.Errorf("a command that fails: %v, %s", err, out)
	}
	out, err = n.crictl(t, "exec", "-s", "--timeout", "1", web.containerID, "sleep", "100").CombinedOutput()
	if !errors.As(err, &exit) || !strings.Contains(string(out), "DeadlineExceeded") {
		t.Errorf("a command that takes too long: %v, %s", err, out)
	}

	cmd := n.crictl(t, "exec", "-i", web.containerID, "sh", "-c", "cat; echo end")
	cmd.Stdin = strings.NewReader(strings.Repeat("0123456789abcde\n", 10_000))
	out, err = cmd.Output()
	if err != nil || string(out) != strings.Repeat("0123456789abcde\n", 10_000)+"end\n" {
		t.Errorf("160,000 bytes that go in came out as %d (%v)", len(out), err)
	}
}

func (n *node) execTerminal(t *testing.T, web pod, transport string) {
	term := n.terminal(t, "exec", "-it", "-r", transport, web.containerID, "sh")
	term.resize(t, 90, 33)
	term.write(t, "stty size; echo answer $((6*7)); tty\n")
	term.await(t, `answer 42\r?\n/dev/`)
	term.until(t, "stty size\n", `33 90\r?\n`)
	term.resize(t, 120, 50)
	term.until(t, "stty size\n", `50 120\r?\n`)
	// It's said by what runs in the foreground: before, the signal reached the shell.
	term.write(t, "sh -c 'echo sleeping $((3*3)); sleep 1000'\n")
	term.await(t, `sleeping 9`)
	term.write(t, "\x03") // Ctrl-C ends the command, not the shell
	term.write(t, "echo still here $((1+1))\n")
	term.await(t, `still here 2`)
	term.write(t, "exit 5\n")
	var exit *exec.ExitError
	if err := term.wait(t); !errors.As(err, &exit) {
		t.Errorf("crictl exec ended with %v, want an error", err)
	}
	term.await(t, "exit code 5")
}

func (n *node) portForward(t *testing.T, web pod, transport string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, n.tools.crictl(), "--config", n.config, "port-forward", "-r", transport, web.id, ":80")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	at := out.await(t, `Forwarding from (127\.0\.0\.1:\d+) -> 80`)
	for range 3 {
		expect(t, "page through the port", get(t, "http://"+at[1]), "this is nginx\n")
	}
	cancel()
	_ = cmd.Wait() // crictl calls its end by a signal one
}

func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			page, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s, %v", url, resp.Status, err)
			}
			http.DefaultClient.CloseIdleConnections()
			return string(page)
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond): // the server may not listen yet
		}
	}
}

// logs -f shows what is there and what comes, and ends with the container.
func (n *node) logs(t *testing.T, shells pod) {
	counter := n.call(t, "create", shells.id, n.container(t, shells, "counter", map[string]any{
		"image": map[string]any{"image": busyboxImage},
		"command": []string{"sh", "-c", "for i in 1 2 3; do echo line $i; done; until [ -e /go ]; do sleep 0.1; done; " +
			"for i in 4 5 6; do echo line $i; done; echo wrong >&2"},
	}), shells.config)
	n.call(t, "start", counter)
	cmd := n.crictl(t, "logs", "-f", counter)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, `^line 1\nline 2\nline 3\n$`)
	n.call(t, "exec", counter, "touch", "/go")
	if err := cmd.Wait(); err != nil {
		t.Errorf("crictl logs -f ended with %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines) // the two streams are not in order
	expect(t, "all lines", lines, []string{"line 1", "line 2", "line 3", "line 4", "line 5", "line 6", "wrong"})
	expect(t, "lines of one stream", n.call(t, "logs", "--stream", "stdout", counter), "line 1\nline 2\nline 3\nline 4\nline 5\nline 6")
}

// attach meets the shell that runs already; with its input at an end, the shell
// ends, too.
func (n *node) attach(t *testing.T, shells pod) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.tools.crictl(), "--config", n.config, "attach", "-i", shells.containerID)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		fmt.Fprintf(in, "echo number $((%d*10))\n", i)
		out.await(t, fmt.Sprintf(`number %d\n$`, i*10))
	}
	fmt.Fprint(in, "exit 4\n")
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("crictl attach ended with %v: %s", err, out)
	}
	deadline := time.Now().Add(patience)
	for {
		var container struct {
			Status struct {
				State    string
				ExitCode int
			}
		}
		n.ask(t, &container, "inspect", shells.containerID)
		if container.Status.State == "CONTAINER_EXITED" {
			expect(t, "exit code of the shell", container.Status.ExitCode, 4)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the shell is %s, want that it has ended", container.Status.State)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// output gathers what a program prints. Safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until what was printed matches the expression.
func (o *output) await(t *testing.T, expression string) []string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for re := regexp.MustCompile(expression); ; time.Sleep(20 * time.Millisecond) {
		if found := re.FindStringSubmatch(o.String()); found != nil {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing like %q was printed, but %q", expression, o)
		}
	}
}

// terminal is a crictl that a person could sit before.
type terminal struct {
	*output
	console console.Console
	cmd     *exec.Cmd
	copied  chan struct{} // closed when all that was printed is in output
}

func (n *node) terminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	term := &terminal{output: &output{}, console: master, cmd: n.crictl(t, args...), copied: make(chan struct{})}
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(term.copied)
		_, _ = io.Copy(term.output, master) // ends with an error when crictl has ended
	}()
	t.Cleanup(func() {
		master.Close()
		_ = term.cmd.Wait() // the test's end has killed it, if it still ran
	})
	return term
}

func (t *terminal) resize(tb testing.TB, width, height uint16) {
	tb.Helper()
	if err := t.console.Resize(console.WinSize{Width: width, Height: height}); err != nil {
		tb.Fatal(err)
	}
}

func (t *terminal) write(tb testing.TB, text string) {
	tb.Helper()
	if _, err := io.WriteString(t.console, text); err != nil {
		tb.Fatal(err)
	}
}

// until types the text again and again until it is answered: a new size takes its
// time.
func (t *terminal) until(tb testing.TB, text, answer string) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for re := regexp.MustCompile(answer); !re.MatchString(t.String()); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%q has no answer like %q in %q", text, answer, t)
		}
		t.write(tb, text)
	}
}

// wait returns when crictl has ended.
func (t *terminal) wait(tb testing.TB) error {
	tb.Helper()
	err := t.cmd.Wait()
	<-t.copied
	return err
}

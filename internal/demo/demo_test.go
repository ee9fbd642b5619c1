package demo

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runAsDemo in the environment makes the test binary behave like berth-demo.
const runAsDemo = "BERTH_TEST_AS_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(runAsDemo) != "" {
		os.Exit(Main(os.Args))
	}
	os.Exit(m.Run())
}

// command makes a process of berth-demo with its own process group, which the
// end of the test kills.
func demoCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), runAsDemo+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// running is a started berth-demo whose lines can be waited for.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startDemo(t *testing.T, args ...string) *running {
	t.Helper()
	return startCommand(t, demoCommand(t, args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return &running{t: t, cmd: cmd, lines: bufio.NewScanner(out)}
}

// line waits for a line with that text and gives it.
func (r *running) line(text string) string {
	r.t.Helper()
	for r.lines.Scan() {
		if strings.Contains(r.lines.Text(), text) {
			return r.lines.Text()
		}
	}
	r.t.Fatalf("it ended without printing %q", text)
	return ""
}

// stop sends SIGTERM and gives the exit code.
func (r *running) stop() int {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	return r.ended()
}

func (r *running) ended() int {
	for r.lines.Scan() { // Wait closes the pipe: read it to the end first
	}
	_ = r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

// inProcess runs a tool in this process.
func inProcess(stdin string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	p := &program{in: strings.NewReader(stdin), out: &o, err: &e, term: make(chan struct{})}
	code = p.main(append([]string{"berth-demo"}, args...))
	return code, o.String(), e.String()
}

func TestExitCodes(t *testing.T) {
	cases := map[string]int{
		"exit 0": 0, "exit 7": 7, "exit 255 --after 1ms": 255, "exit --after=1ms 3": 3, "exit 256": 2, "exit": 2, "exit x": 2,
		"true": 0, "false": 1, "crash-after 1ms": 1, "crash-after": 2, "sleep 1ms": 0, "sleep 0.001": 0, "sleep -1": 2,
		"no-such-command": 2, "cat /no/such/file": 1, "wait-file / --timeout 1s": 0, "wait-file /no/such --timeout 1ms": 1,
		"print-lines x": 2, "alloc": 2, "serve what": 2, "--help": 0, "sleep --help": 0, "serve --bad-flag": 2, "ignore-term 1ms": 0,
		"http-get": 2, "http-get http://127.0.0.1:1/": 1, "env NO_SUCH_VARIABLE": 1,
	}
	for line, want := range cases {
		t.Run(line, func(t *testing.T) {
			code, out, errOut := inProcess("", strings.Fields(line)...)
			if code != want {
				t.Errorf("code %d, want %d; out %q err %q", code, want, out, errOut)
			}
			if want == 2 && errOut == "" {
				t.Error("a wrong command line is not explained")
			}
		})
	}
}

func TestEndsBySIGTERM(t *testing.T) {
	cases := map[string]struct {
		line string // to wait for before the signal
		want int
	}{
		"serve --port 0":            {"serving", 0},
		"grpc-health --port 0":      {"serving", 0},
		"tcp-listen --port 0":       {"listening", 0},
		"udp-echo --port 0":         {"listening", 0},
		"term-delay 1ms":            {"waiting", 0},
		"crash-after inf":           {"crashing", 143},
		"slow-start inf":            {"starting", 143},
		"alloc 1":                   {"using 1 MiB", 143},
		"spawn 0":                   {"started", 143},
		"print-lines 0 --rate 1000": {"line 3", 143},
		"print-lines 2 --hold":      {"line 2", 0},
	}
	for args, c := range cases {
		t.Run(args, func(t *testing.T) {
			r := startDemo(t, strings.Fields(args)...)
			r.line(c.line)
			if got := r.stop(); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
}

func TestIgnoreTermSurvivesSIGTERM(t *testing.T) {
	r := startDemo(t, "ignore-term")
	r.line("ignoring")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.line("SIGTERM ignored")
	if err := r.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}

// As process 1 of a pid namespace it gets SIGTERM, and orphans don't stay
// zombies.
func TestProcessOneGetsSignalsAndReaps(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a pid namespace")
	}
	cmd := demoCommand(t, "spawn", "1", "--each", "1")
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	r := startCommand(t, cmd)
	for range 2 { // the child and the grandchild are there
		r.line("started 1 children")
	}
	middle := childrenOf(t, cmd.Process.Pid)[0]
	grandchild := childrenOf(t, middle)[0]
	for _, pid := range []int{middle, grandchild} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for len(childrenOf(t, cmd.Process.Pid)) > 0 && t.Context().Err() == nil { // zombies count as children
		continue
	}
	if got := r.stop(); got != 143 {
		t.Errorf("exit code %d", got)
	}
}

func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		raw, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(raw)) {
			var child int
			if _, err := fmt.Sscan(f, &child); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

func TestForkBombStopsAfterItsGenerations(t *testing.T) {
	r := startDemo(t, "forkbomb", "--max", "2")
	all := func() int {
		n := 0
		for _, c := range childrenOf(t, r.cmd.Process.Pid) {
			n += 1 + len(childrenOf(t, c))
		}
		return n
	}
	for all() != 6 && t.Context().Err() == nil { // 2 children with 2 each
		continue
	}
}

func TestPrintLines(t *testing.T) {
	code, out, _ := inProcess("", "print-lines", "12", "--size", "20")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != 0 || len(lines) != 12 || lines[0] != "line 1 xxxxxxxxxxxx" || lines[11] != "line 12 xxxxxxxxxxx" {
		t.Errorf("%d %q", code, out)
	}
	if _, out, errOut := inProcess("", "print-lines", "1", "--stderr"); out != "" || errOut != "line 1\n" {
		t.Errorf("%q %q", out, errOut)
	}
}

func TestAllocUsesMemory(t *testing.T) {
	r := startDemo(t, "alloc", "24", "--step", "8")
	r.line("using 24 MiB")
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var total, resident int
	if _, err := fmt.Sscan(string(raw), &total, &resident); err != nil {
		t.Fatal(err)
	}
	if got := resident * os.Getpagesize() / mib; got < 24 {
		t.Errorf("%d MiB are resident", got)
	}
}

func TestEachCommandIsDescribedOnce(t *testing.T) {
	seen := map[string]bool{}
	_, help, _ := inProcess("")
	for _, c := range commands() {
		if seen[c.name] || c.help == "" || c.run == nil {
			t.Errorf("%q is there twice, or incomplete", c.name)
		}
		seen[c.name] = true
		if !strings.Contains(help, "  "+c.name) {
			t.Errorf("the help lacks %q", c.name)
		}
	}
}

func TestCalledByTheNameOfALink(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := &program{out: &out, err: io.Discard, term: make(chan struct{})}
	if code := p.main([]string{"/bin/cat", file}); code != 0 || out.String() != "text" {
		t.Errorf("%d %q", code, out.String())
	}
}

func TestFileCommands(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	steps := []struct {
		stdin, args, want string
		code              int
	}{
		{"", "write DIR/a one two", "", 0},
		{"", "write --append DIR/a three", "", 0},
		{"from stdin", "write DIR/b", "", 0},
		{"", "cat DIR/a DIR/b", "one two\nthree\nfrom stdin", 0},
		{"piped", "cat", "piped", 0},
		{"", "cat DIR/none DIR/b", "from stdin", 1},
		{"", "mkdir DIR/c/d", "", 1},
		{"", "mkdir -p DIR/c/d", "", 0},
		{"", "touch DIR/c/.hidden DIR/c/e", "", 0},
		{"", "ls DIR/c", "d\ne\n", 0},
		{"", "ls -a DIR/c", ".hidden\nd\ne\n", 0},
		{"", "ls DIR/a", "DIR/a\n", 0},
		{"", "ls DIR/none", "", 1},
		{"", "rm DIR/c", "", 1},
		{"", "rm -rf DIR/c DIR/none", "", 0},
		{"", "rm DIR/none", "", 1},
		{"", "test -e DIR/c", "", 1},
		{"", "test -f DIR/a", "", 0},
		{"", "test -f DIR", "", 1},
		{"", "test -d DIR", "", 0},
		{"", "test ! -d DIR", "", 1},
		{"", "test -s DIR/a", "", 0},
		{"", "test -r DIR/a", "", 0},
		{"", "test -x DIR/a", "", 1},
		{"", "test -L DIR/a", "", 1},
		{"", "test a = a", "", 0},
		{"", "test a != a", "", 1},
		{"", "test -z a", "", 1},
		{"", "test -n a", "", 0},
		{"", "test", "", 1},
		{"", "test -q a", "", 2},
		{"", "test a b c d", "", 2},
		{"", "echo -n a b", "a b", 0},
		{"", "echo --help", "--help\n", 0},
	}
	for _, s := range steps {
		code, out, errOut := inProcess(s.stdin, strings.Fields(strings.ReplaceAll(s.args, "DIR", dir))...)
		if code != s.code || out != strings.ReplaceAll(s.want, "DIR", dir) {
			t.Errorf("%s: code %d out %q err %q, want %d %q", s.args, code, out, errOut, s.code, s.want)
		}
	}
	if err := os.Chmod(path("a"), 0o640); err != nil {
		t.Fatal(err)
	}
	_, out, _ := inProcess("", "stat", path("a"))
	want := fmt.Sprintf("-rw-r----- 0640 %d:%d 14 %s\n", os.Geteuid(), os.Getegid(), path("a"))
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
}

func TestFacts(t *testing.T) {
	t.Setenv("DEMO_VARIABLE", "value")
	for args, want := range map[string]string{
		"env DEMO_VARIABLE": "value\n",
		"env":               "DEMO_VARIABLE=value\n",
		"id":                fmt.Sprintf("uid=%d gid=%d", os.Geteuid(), os.Getegid()),
		"caps":              "NoNewPrivs: ",
		"mounts":            " / ",
		"resolv localhost":  "127.0.0.1\n",
	} {
		if code, out, errOut := inProcess("", strings.Fields(args)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, errOut, want)
		}
	}
}

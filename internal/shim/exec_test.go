package shim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

func childrenOf(pid int) []string {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var list []string
	for _, f := range files {
		b, _ := os.ReadFile(f)
		list = append(list, strings.Fields(string(b))...)
	}
	return list
}

func TestExecStreams(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	var out, errs buffer
	exit, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("both", "to out", "to err"), Stdout: &out, Stderr: &errs})
	if err != nil || exit.Code != 0 || !exit.Known {
		t.Fatalf("exit %+v, %v", exit, err)
	}
	if out.String() != "to out\n" || errs.String() != "to err\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
	out = buffer{}
	exit, err = n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("cat"), Stdin: strings.NewReader("given"), Stdout: &out})
	if err != nil || exit.Code != 0 || out.String() != "givenend of input\n" {
		t.Errorf("exit %+v, %v, output %q", exit, err, out.String())
	}
	exit, err = n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("exit", "9")})
	if err != nil || exit.Code != 9 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	_, err = n.Exec(n.ctx, shim.ExecRequest{ID: "none", Process: process("true"), Stdout: &out})
	if !errors.Is(err, shim.ErrNotFound) {
		t.Errorf("exec in an unknown container: %v", err)
	}
	p := process("true")
	p.Args = []string{"nothere"}
	_, err = n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: p, Stdout: &out})
	var se *shim.StartError
	if !errors.As(err, &se) || se.Reason != shim.CommandNotFound {
		t.Errorf("exec of nothing: %v", err)
	}
}

func TestExecOutputIsComplete(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	var out buffer
	const size = 4 << 20
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("flood", fmt.Sprint(size)), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := len(out.String()); got != size {
		t.Errorf("%d bytes, want %d", got, size)
	}
}

// A time-out and a cancelled context kill everything an exec has started, also
// what moved to other sessions, and reap it.
func TestExecKillsTheWholeTree(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	procs := func() string {
		t.Helper()
		var out buffer
		if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("procs"), Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.String())
	}
	const quiet = "2 [0]" // the container's first process and the one that counts
	for name, end := range map[string]func(shim.ExecRequest, <-chan struct{}) error{
		"timeout": func(r shim.ExecRequest, _ <-chan struct{}) error {
			r.Timeout = 300 * time.Millisecond
			exit, err := n.Exec(n.ctx, r)
			if exit.Signal != 9 {
				t.Errorf("exit %+v", exit)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			return nil
		},
		"cancel": func(r shim.ExecRequest, grown <-chan struct{}) error {
			ctx, cancel := context.WithCancel(n.ctx)
			go func() {
				<-grown
				cancel()
			}()
			if _, err := n.Exec(ctx, r); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			grown := make(chan struct{})
			w := writerFunc(func(p []byte) (int, error) {
				if strings.Contains(string(p), "grown") {
					select {
					case <-grown:
					default:
						close(grown)
					}
				}
				return len(p), nil
			})
			if err := end(shim.ExecRequest{ID: "a", Process: process("tree", "3"), Stdout: w}, grown); err != nil {
				t.Fatal(err)
			}
			n.until("only the first process is left", func() bool { return procs() == quiet })
		})
	}
	if left := childrenOf(n.shimPID()); len(left) != 1 {
		t.Errorf("children of the shim: %v, want only the container", left)
	}
}

// A process that an exec leaves behind on purpose lives on, and does not keep
// Exec from returning.
func TestExecLeavesDaemonsAlone(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	var out buffer
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("daemon"), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "left\n" {
		t.Errorf("output %q", out.String())
	}
	out = buffer{}
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("procs"), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != "3 [0]" {
		t.Errorf("processes %s, want first, daemon and counter", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExecWithTerminal(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	var out buffer
	sizes := make(chan shim.Size, 1)
	p := process("size")
	p.Terminal = true
	ctx, cancel := context.WithCancel(n.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := n.Exec(ctx, shim.ExecRequest{ID: "a", ExecID: "e", Process: p, TTY: true, Stdout: &out, Resize: sizes})
		ended <- err
	}()
	n.until("it says its size", func() bool { return strings.Contains(out.String(), "x") })
	sizes <- shim.Size{Width: 90, Height: 30}
	n.until("it sees the first size", func() bool { return strings.Contains(out.String(), "90x30\r\n") })
	if err := n.Resize(n.ctx, "a", "e", 91, 31); err != nil {
		t.Fatal(err)
	}
	n.until("it sees the second size", func() bool { return strings.Contains(out.String(), "91x31\r\n") })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := n.Resize(n.ctx, "a", "e", 91, 31); !errors.Is(err, shim.ErrNotFound) {
		t.Errorf("resize after the end: %v", err)
	}
	// One whose terminal hangs up gets SIGHUP.
	out = buffer{}
	sizes = make(chan shim.Size)
	hung := make(chan shim.Exit, 1)
	go func() {
		exit, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: p, TTY: true, Stdout: &out, Resize: sizes})
		if err != nil {
			t.Errorf("after its terminal hung up: %v", err)
		}
		hung <- exit
	}()
	n.until("it says its size again", func() bool { return strings.Contains(out.String(), "x") })
	close(sizes)
	if exit := <-hung; exit.Signal != int32(syscall.SIGHUP) {
		t.Errorf("after its terminal hung up: exit %+v", exit)
	}
	// A command that ends by itself has all its output written.
	out = buffer{}
	p = process("echo", "all of it")
	p.Terminal = true
	exit, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: p, TTY: true, Stdout: &out})
	if err != nil || exit.Code != 0 || out.String() != "all of it\r\n" {
		t.Errorf("exit %+v, %v, output %q", exit, err, out.String())
	}
}

package shim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

func TestExitIsReportedAsTheKernelSaysIt(t *testing.T) {
	n := newNode(t)
	for name, tc := range map[string]struct {
		args   []string
		signal syscall.Signal
		want   shim.Exit
	}{
		"success":               {args: []string{"true"}, want: shim.Exit{Known: true}},
		"an-exit-code":          {args: []string{"exit", "7"}, want: shim.Exit{Code: 7, Known: true}},
		"the-largest-exit-code": {args: []string{"exit", "255"}, want: shim.Exit{Code: 255, Known: true}},
		"killed":                {args: []string{"sleep"}, signal: syscall.SIGKILL, want: shim.Exit{Code: 137, Signal: 9, Known: true}},
		"term-handled":          {args: []string{"trap"}, signal: syscall.SIGTERM, want: shim.Exit{Code: 42, Known: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.bundle(name, nil, tc.args...)
			n.start(r)
			if tc.signal != 0 {
				if tc.signal != syscall.SIGKILL {
					n.logHas(r.LogPath, "ready")
				}
				if err := n.Signal(n.ctx, name, tc.signal, false); err != nil {
					t.Fatal(err)
				}
			}
			got := n.wait(name)
			if got.At.IsZero() {
				t.Error("no time of exit")
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(shim.Exit{}, "At")); diff != "" {
				t.Errorf("exit (-want +got):\n%s", diff)
			}
			// A signal to one that has ended does nothing.
			if err := n.Signal(n.ctx, name, syscall.SIGTERM, true); err != nil {
				t.Errorf("signal after the end: %v", err)
			}
			for range 2 {
				if err := n.Delete(n.ctx, name); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
}

// A signal sent as soon as the container is started is for its command, not for
// the program that makes containers, which ends on it with exit code 2.
func TestSignalAtOnceReachesTheCommand(t *testing.T) { testSignalAtOnce(t, 40) }

func testSignalAtOnce(t *testing.T, rounds int) {
	t.Helper()
	n := newNode(t)
	program := filepath.Join(t.TempDir(), "nap")
	cc := exec.Command("gcc", "-static", "-x", "c", "-o", program, "-")
	// As the first process of its namespace it gets no signal that it does not handle.
	cc.Stdin = strings.NewReader("#include <unistd.h>\nint main(void) { usleep(100000); return 7; }")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	nap, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		name := fmt.Sprintf("nap-%d", i)
		r := n.bundle(name, func(s *specs.Spec) { s.Process.Args = []string{"/nap"} })
		if err := os.WriteFile(filepath.Join(n.dir, "image", "nap"), nap, 0o755); err != nil {
			t.Fatal(err)
		}
		n.start(r)
		if err := n.Signal(n.ctx, name, syscall.SIGTERM, false); err != nil {
			t.Fatal(err)
		}
		if got := n.wait(name); got.Code != 7 {
			t.Fatalf("round %d: it ends with %+v, want exit code 7", i, got)
		}
		if err := n.Delete(n.ctx, name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStatesOfALife(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "init")
	state := func() shim.State {
		t.Helper()
		list, err := n.List(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || list[0].ID != "a" {
			t.Fatalf("list is %+v", list)
		}
		return list[0].State
	}
	if _, err := n.Create(n.ctx, r); err != nil {
		t.Fatal(err)
	}
	if s := state(); s != shim.Created {
		t.Errorf("state is %s after Create", s)
	}
	if _, err := n.Create(n.ctx, r); !errors.Is(err, shim.ErrExists) {
		t.Errorf("second Create: %v", err)
	}
	first, err := n.Start(n.ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if s := state(); s != shim.Running {
		t.Errorf("state is %s after Start", s)
	}
	if again, err := n.Start(n.ctx, "a"); err != nil || !again.Equal(first) {
		t.Errorf("second Start: %v, %v; want %v", again, err, first)
	}
	if err := n.Shutdown(n.ctx); !errors.Is(err, shim.ErrState) {
		t.Errorf("Shutdown with a container: %v", err)
	}
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	n.wait("a")
	if s := state(); s != shim.Exited {
		t.Errorf("state is %s after the end", s)
	}
	if _, err := n.Start(n.ctx, "a"); !errors.Is(err, shim.ErrState) {
		t.Errorf("Start after the end: %v", err)
	}
	if _, err := n.Wait(n.ctx, "b"); !errors.Is(err, shim.ErrNotFound) {
		t.Errorf("Wait for an unknown one: %v", err)
	}
}

func TestStartErrorsSayWhyAndLeaveNothing(t *testing.T) {
	n := newNode(t)
	for name, tc := range map[string]struct {
		change func(*specs.Spec)
		reason string
		text   string
	}{
		"not-in-path":    {func(s *specs.Spec) { s.Process.Args = []string{"nothere"} }, shim.CommandNotFound, "executable file not found in $PATH"},
		"no-such-file":   {func(s *specs.Spec) { s.Process.Args = []string{"/bin/nothere"} }, shim.CommandNotFound, "no such file or directory"},
		"a-directory":    {func(s *specs.Spec) { s.Process.Args = []string{"/bin"} }, shim.PermissionDenied, "is a directory"},
		"no-command":     {func(s *specs.Spec) { s.Process.Args = nil }, shim.CommandNotFound, "no command specified"},
		"no-mount":       {func(s *specs.Spec) { s.Mounts[1].Type = "nofs" }, shim.StartFailed, "no such device"},
		"no-such-rlimit": {func(s *specs.Spec) { s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_X"}} }, shim.StartFailed, "RLIMIT_X"},
	} {
		t.Run(name, func(t *testing.T) {
			mustNotCreate(t, n, n.bundle(name, tc.change, "true"), tc.reason, tc.text)
		})
	}
}

// mustNotCreate fails unless a container can't be created, for a reason and with
// words that hold text, and nothing is left of it.
func mustNotCreate(t *testing.T, n *node, r shim.CreateRequest, reason, text string) {
	t.Helper()
	_, err := n.Create(n.ctx, r)
	var se *shim.StartError
	if !errors.As(err, &se) {
		t.Fatalf("error is %v, want a StartError", err)
	}
	if se.Reason != reason || !strings.Contains(se.Message, text) {
		t.Errorf("reason %s, message %q; want %s, …%s…", se.Reason, se.Message, reason, text)
	}
	if list, err := n.List(n.ctx); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestEventsReplayExitsUntilDelete(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("early", nil, "exit", "3"))
	n.wait("early")

	ctx, cancel := context.WithCancel(n.ctx)
	got := make(chan shim.Event, 100)
	ended := make(chan error, 1)
	go func() { ended <- n.Events(ctx, func(e shim.Event) { got <- e }) }()
	next := func() shim.Event {
		t.Helper()
		select {
		case e := <-got:
			return e
		case <-n.ctx.Done():
			t.Fatal("no event")
			return shim.Event{}
		}
	}
	if e := next(); e.Kind != shim.ContainerExited || e.ID != "early" || e.Exit.Code != 3 {
		t.Errorf("first event is %+v", e)
	}
	if e := next(); e.Kind != shim.Replayed {
		t.Errorf("second event is %+v", e)
	}
	n.start(n.bundle("late", nil, "exit", "4"))
	if e := next(); e.Kind != shim.ContainerStarted || e.ID != "late" {
		t.Errorf("third event is %+v", e)
	}
	if e := next(); e.Kind != shim.ContainerExited || e.ID != "late" || e.Exit.Code != 4 {
		t.Errorf("fourth event is %+v", e)
	}
	if err := n.Delete(n.ctx, "early"); err != nil {
		t.Fatal(err)
	}

	// After the shim's death the stream goes on, with what is not deleted.
	n.killShim()
	if e := next(); e.Kind != shim.ContainerExited || e.ID != "late" || e.Exit.Code != 4 {
		t.Errorf("first event of the new shim is %+v", e)
	}
	if e := next(); e.Kind != shim.Replayed {
		t.Errorf("second event of the new shim is %+v", e)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Events ended with %v", err)
	}
}

func TestSignalAllReachesEveryProcess(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "tree", "2")
	n.start(r)
	n.logHas(r.LogPath, "grown")
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Signal != 9 {
		t.Errorf("exit is %+v", e)
	}
}

// With the host's PID namespace nothing but the shim ends what a container's
// first process leaves.
func TestWithoutPIDNamespaceNothingSurvives(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) {
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.PIDNamespace })
	}, "daemon")
	n.start(r)
	n.wait("a")
	if got, want := n.entries(r.LogPath), []string{"stdout F left"}; !slices.Equal(got, want) {
		t.Errorf("log %q, want %q", got, want)
	}
	n.until("orphans are reaped", func() bool { return len(childrenOf(n.shimPID())) == 0 })
}

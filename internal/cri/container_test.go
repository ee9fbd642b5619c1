package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/berth-run/berth/internal/cri/store"
	"github.com/berth-run/berth/internal/shim"
)

func killed() shim.Exit { return shim.Killed(syscall.SIGKILL, time.Now()) }

// subscribe gives the events from here on.
func subscribe(t *testing.T, f *fixture) <-chan *runtimeapi.ContainerEventResponse {
	t.Helper()
	events := make(chan *runtimeapi.ContainerEventResponse, 100)
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	}()
	<-ready
	t.Cleanup(func() { cancel(); <-ended })
	return events
}

func TestContainerLife(t *testing.T) {
	f := newFixture(t)
	events := subscribe(t, f)
	sb, id := f.runOne(t)
	st := f.statusOf(t, id)
	if st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() < st.GetCreatedAt() || st.GetFinishedAt() != 0 {
		t.Errorf("running: %v", st)
	}
	if st.GetImage().GetImage() != testImage || !strings.Contains(st.GetImageRef(), "@sha256:cd") || !strings.HasPrefix(st.GetImageId(), "sha256:ab") {
		t.Errorf("image %v %s %s", st.GetImage(), st.GetImageRef(), st.GetImageId())
	}
	if st.GetStopSignal() != runtimeapi.Signal_SIGNAL_SIGQUIT {
		t.Errorf("stop signal %v, want the image's", st.GetStopSignal())
	}
	if err := f.StopContainer(t.Context(), id, 10); err != nil {
		t.Fatal(err)
	}
	st = f.statusOf(t, id)
	if st.GetExitCode() != 131 || st.GetReason() != "Error" || st.GetFinishedAt() < st.GetStartedAt() {
		t.Errorf("stopped by SIGQUIT: %v", st)
	}
	for range 2 {
		if err := f.StopContainer(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for range 6 {
		e := <-events
		who := "container"
		if e.GetContainerId() == sb {
			who = "sandbox"
		}
		got = append(got, who+" "+strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT"))
	}
	want := "sandbox CREATED,sandbox STARTED,container CREATED,container STARTED,container STOPPED,container DELETED"
	if strings.Join(got, ",") != want {
		t.Errorf("events %v", got)
	}
}

func TestExitReasons(t *testing.T) {
	for name, tt := range map[string]struct {
		exit   shim.Exit
		code   int32
		reason string
	}{
		"success":              {shim.Exit{Known: true}, 0, "Completed"},
		"failure":              {shim.Exit{Known: true, Code: 3}, 3, "Error"},
		"killed for memory":    {shim.Exit{Known: true, Code: 137, Signal: 9, OOMKilled: true}, 137, "OOMKilled"},
		"an unknown exit code": {shim.Exit{Code: 0}, UnknownExitCode, ReasonUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, id := f.runOne(t)
			tt.exit.At = time.Now()
			f.shim.exit(id, tt.exit)
			st := f.awaitExit(t, id)
			if st.GetExitCode() != tt.code || st.GetReason() != tt.reason || st.GetFinishedAt() != tt.exit.At.UnixNano() {
				t.Errorf("status %v", st)
			}
			if (st.GetMessage() != "") != (tt.reason == ReasonUnknown) {
				t.Errorf("message %q", st.GetMessage())
			}
		})
	}
}

// A process may end before the answer to its start has arrived.
func TestExitDuringStartIsSeenAfterIt(t *testing.T) {
	f := newFixture(t)
	id := f.createOne(t)
	events := subscribe(t, f)
	f.shim.onStart = func(id string) error {
		f.shimEvent(t.Context(), shim.Event{Kind: shim.ContainerExited, ID: id, Exit: &shim.Exit{Known: true, Code: 5, At: time.Now()}})
		return nil
	}
	if err := f.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if st := f.awaitExit(t, id); st.GetExitCode() != 5 || st.GetStartedAt() == 0 {
		t.Errorf("status %v", st)
	}
	first, second := <-events, <-events
	if first.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT ||
		second.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
		t.Errorf("events %v, %v", first.GetContainerEventType(), second.GetContainerEventType())
	}
	if err := f.StartContainer(t.Context(), id); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("second start: %v", err)
	}
}

func TestFailedStartIsReported(t *testing.T) {
	f := newFixture(t)
	id := f.createOne(t)
	cause := &shim.StartError{Reason: shim.CommandNotFound, Message: `exec: "/app": no such file or directory`}
	f.shim.onStart = func(string) error { return cause }
	err := f.StartContainer(t.Context(), id)
	var start *shim.StartError
	if !errors.As(err, &start) {
		t.Errorf("error %v", err)
	}
	st := f.statusOf(t, id)
	if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 || st.GetReason() != "StartError" || st.GetMessage() != cause.Message || st.GetStartedAt() != 0 {
		t.Errorf("status %v", st)
	}
	if ids := f.shim.ids(); len(ids) > 0 {
		t.Errorf("the shim still has %v", ids)
	}
}

// The answer to a start is lost, but it took effect.
func TestLostStartIsFound(t *testing.T) {
	f := newFixture(t)
	id := f.createOne(t)
	f.shim.onStart = func(id string) error {
		f.shim.mu.Lock()
		defer f.shim.mu.Unlock()
		f.shim.containers[id].State, f.shim.containers[id].StartedAt = shim.Running, time.Now()
		return shim.ErrGone
	}
	if err := f.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if st := f.statusOf(t, id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("status %v", st)
	}
}

// The shim is lost in the middle of a start, and the next one says how far it got.
func TestStartGoesOnAfterTheShimIsLost(t *testing.T) {
	created := runtimeapi.ContainerState_CONTAINER_CREATED
	running := runtimeapi.ContainerState_CONTAINER_RUNNING
	for name, tt := range map[string]struct {
		create, start, list func(f *fakeShim, n int, id string) error // n counts from 1
		state               runtimeapi.ContainerState
		inShim              int
	}{
		"before it was made": {create: func(_ *fakeShim, n int, _ string) error { return goneAt(n == 1) }, state: running, inShim: 1},
		"made": {create: func(f *fakeShim, n int, id string) error {
			f.containers[id] = &shim.Status{ID: id, PID: f.pid, State: shim.Created}
			return goneAt(n == 1)
		}, state: running, inShim: 1},
		"its process died with it": {start: func(f *fakeShim, n int, id string) error {
			if n == 1 {
				f.containers[id].State, f.containers[id].Exit = shim.Exited, &shim.Exit{}
			}
			return goneAt(n == 1)
		}, state: running, inShim: 1},
		"before the start": {start: func(_ *fakeShim, n int, _ string) error { return goneAt(n == 1) }, state: running, inShim: 1},
		"each time":        {start: func(*fakeShim, int, string) error { return goneAt(true) }, state: created},
		"and none comes back": {
			start: func(*fakeShim, int, string) error { return goneAt(true) },
			list:  func(*fakeShim, int, string) error { return errors.New("no shim") },
			state: runtimeapi.ContainerState_CONTAINER_UNKNOWN, inShim: 1,
		},
		"no, it has no space": {create: func(*fakeShim, int, string) error { return errors.New("no space left") }, state: created},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id := f.createOne(t)
			creates, starts, lists := 0, 0, 0
			f.shim.mu.Lock()
			if tt.create != nil {
				f.shim.onCreate = func(id string) error { creates++; return tt.create(f.shim, creates, id) }
			}
			if tt.start != nil {
				f.shim.onStart = func(id string) error {
					f.shim.mu.Lock()
					defer f.shim.mu.Unlock()
					starts++
					return tt.start(f.shim, starts, id)
				}
			}
			if tt.list != nil {
				f.shim.onList = func() error { lists++; return tt.list(f.shim, lists, "") }
			}
			f.shim.mu.Unlock()
			err := f.StartContainer(t.Context(), id)
			if (err == nil) != (tt.state == running) {
				t.Errorf("error %v", err)
			}
			if st := f.statusOf(t, id); st.GetState() != tt.state || st.GetReason() != "" {
				t.Errorf("status %v", st)
			}
			if ids := f.shim.ids(); len(ids) != tt.inShim {
				t.Errorf("the shim has %v", ids)
			}
			f.shim.mu.Lock()
			f.shim.onCreate, f.shim.onStart, f.shim.onList = nil, nil, nil
			f.shim.mu.Unlock()
		})
	}
}

func goneAt(yes bool) error {
	if yes {
		return shim.ErrGone
	}
	return nil
}

// A start took effect and nobody could be asked; the next look tells.
func TestStartIsNoticedLate(t *testing.T) {
	f := newFixture(t)
	id := f.createOne(t)
	f.shim.mu.Lock()
	f.shim.onStart = func(id string) error {
		f.shim.mu.Lock()
		defer f.shim.mu.Unlock()
		f.shim.containers[id].State, f.shim.containers[id].StartedAt = shim.Running, time.Now()
		f.shim.onList = func() error { return errors.New("no shim") }
		return shim.ErrGone
	}
	f.shim.mu.Unlock()
	if err := f.StartContainer(t.Context(), id); err == nil {
		t.Error("the start is said to have succeeded")
	}
	f.shim.mu.Lock()
	f.shim.onList = nil
	f.shim.mu.Unlock()
	if err := f.reobserve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := f.statusOf(t, id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() == 0 {
		t.Errorf("status %v", st)
	}
}

func TestStubbornContainerIsKilled(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.stubborn = true
	if err := f.StopContainer(t.Context(), id, 1); err != nil {
		t.Fatal(err)
	}
	if st := f.statusOf(t, id); st.GetExitCode() != 137 {
		t.Errorf("status %v", st)
	}
}

// A second stop with a shorter time does not wait for the first.
func TestShorterStopOvertakes(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.stubborn = true
	first := make(chan error, 1)
	go func() { first <- f.StopContainer(t.Context(), id, 3600) }()
	if err := f.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// Stops at once send the signal once; one that comes after they gave up sends it
// again.
func TestStopsAtOnceSignalOnce(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.stubborn = true
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for range cap(ended) {
		go func() { ended <- f.StopContainer(ctx, id, 3600) }()
	}
	c, err := f.container(id)
	if err != nil {
		t.Fatal(err)
	}
	for waiting := 0; waiting < cap(ended); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		waiting = c.stopping
		c.mu.Unlock()
	}
	giveUp()
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	if got, want := f.shim.sent(), []syscall.Signal{syscall.SIGQUIT}; !slices.Equal(got, want) {
		t.Errorf("signals %v, want %v", got, want)
	}
	if err := f.StopContainer(t.Context(), id, 1); err != nil {
		t.Fatal(err)
	}
	if got, want := f.shim.sent(), []syscall.Signal{syscall.SIGQUIT, syscall.SIGQUIT, syscall.SIGKILL}; !slices.Equal(got, want) {
		t.Errorf("signals %v, want %v", got, want)
	}
}

func TestCancelledStopDoesNotKill(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.stubborn = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.StopContainer(ctx, id, 3600); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if st := f.statusOf(t, id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("status %v", st)
	}
}

func TestContainerTheShimHasLost(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.Delete(t.Context(), id)
	if err := f.StopContainer(t.Context(), id, 10); err != nil {
		t.Fatal(err)
	}
	if st := f.statusOf(t, id); st.GetExitCode() != UnknownExitCode || st.GetReason() != ReasonUnknown {
		t.Errorf("status %v", st)
	}
}

// An event is lost; asking finds the end of the container.
func TestLostEventIsMadeUpFor(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.mu.Lock()
	f.shim.containers[id].State, f.shim.containers[id].Exit = shim.Exited, &shim.Exit{Known: true, Code: 6, At: time.Now()}
	f.shim.mu.Unlock()
	if err := f.reobserve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := f.statusOf(t, id); st.GetExitCode() != 6 {
		t.Errorf("status %v", st)
	}
}

// A new shim replays what it knows, which is nothing.
func TestForgetfulShim(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.Delete(t.Context(), id)
	f.shimEvent(t.Context(), shim.Event{Kind: shim.Replayed})
	if st := f.awaitExit(t, id); st.GetExitCode() != UnknownExitCode || st.GetReason() != ReasonUnknown {
		t.Errorf("status %v", st)
	}
}

// Each step of making a container is made to fail after it took effect.
func TestFailedContainerLeavesNothing(t *testing.T) {
	f := newFixture(t)
	sb, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	config := containerConfig("app")
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/models", Image: &runtimeapi.ImageSpec{Image: testImage}, Readonly: true}}
	steps := f.containerSteps(&creation{container: newContainer(store.Container{})})
	for _, st := range steps {
		t.Run(st.name, func(t *testing.T) {
			f.fault = func(name string) error {
				if name == st.name {
					return errors.New("injected")
				}
				return nil
			}
			defer func() { f.fault = nil }()
			if _, err := f.CreateContainer(t.Context(), sb, config, nil); err == nil || !strings.Contains(err.Error(), "injected") {
				t.Errorf("error %v", err)
			}
			if list := f.allContainers(); len(list) > 0 || len(f.images.snapshots) > 0 || len(f.names) != 1 {
				t.Errorf("left: %v, snapshots %v, names %v", list, f.images.snapshots, f.names)
			}
			if entries, _ := os.ReadDir(filepath.Join(f.run, "containers")); len(entries) > 0 {
				t.Errorf("left: %v", entries)
			}
		})
	}
	if err := f.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	f.wantNothing(t)
}

func TestMissingImage(t *testing.T) {
	f := newFixture(t)
	sb, err := f.RunPodSandbox(t.Context(), sandboxConfig("web"), "")
	if err != nil {
		t.Fatal(err)
	}
	config := containerConfig("app")
	config.Image.Image = "nowhere/nothing:1"
	if _, err := f.CreateContainer(t.Context(), sb, config, nil); status.Code(err) != codes.NotFound {
		t.Errorf("error %v", err)
	}
	r, err := f.ImageStatus(t.Context(), config.Image, false)
	if err != nil || r.GetImage() != nil {
		t.Errorf("%v, %v; want an empty answer", r, err)
	}
	if err := f.RemoveImage(t.Context(), config.Image); err != nil {
		t.Errorf("removing a missing image: %v", err)
	}
}

func TestExecSync(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	f.shim.onExec = func(r shim.ExecRequest) shim.Exit {
		r.Stdout.Write([]byte(strings.Join(r.Process.Args, " ")))
		r.Stderr.Write(make([]byte, outputLimit+5))
		return shim.Exit{Code: 7, Known: true}
	}
	out, errOut, err := f.ExecSync(t.Context(), id, []string{"say", "it"}, 0)
	var code utilexec.ExitError
	if !errors.As(err, &code) || code.ExitStatus() != 7 {
		t.Errorf("error %v", err)
	}
	if string(out) != "say it" || len(errOut) != outputLimit {
		t.Errorf("output %q and %d bytes, want the limit of %d", out, len(errOut), outputLimit)
	}
	f.shim.onExec = nil // hangs
	_, _, err = f.ExecSync(t.Context(), id, []string{"hang"}, time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("error %v", err)
	}
	if err := f.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.ExecSync(t.Context(), id, []string{"x"}, 0); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("in a stopped container: %v", err)
	}
}

func TestUpdateResources(t *testing.T) {
	f := newFixture(t)
	_, id := f.runOne(t)
	err := f.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512}})
	if err != nil {
		t.Fatal(err)
	}
	err = f.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	r := f.statusOf(t, id).GetResources().GetLinux()
	if r.GetCpuShares() != 512 || r.GetMemoryLimitInBytes() != 1<<20 {
		t.Errorf("resources %v", r)
	}
}

func TestSignals(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"15": 15, "TERM": 15, "SIGTERM": 15, "sigquit": 3, "SIGRTMIN": 34, "SIGRTMIN+3": 37, "SIGRTMAX-2": 62, "SIGRTMAX": 64,
		"0": 0, "65": 0, "NONSENSE": 0, "SIGRTMIN+99": 0, "SIGRTMAX+1": 0, "": 0,
	} {
		got, err := parseSignal(name)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v; want %d", name, got, err, want)
		}
	}
	for number := range runtimeapi.Signal_name {
		s := runtimeapi.Signal(number)
		if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT || isAlias(s) {
			continue
		}
		if _, err := parseSignal(criSignalName(s)); err != nil {
			t.Errorf("%v: %v", s, err)
		}
		if back := criStopSignal(0, criSignalName(s)); back != s {
			t.Errorf("%v comes back as %v", s, back)
		}
	}
}

package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

func observeState(t *testing.T, r *Runtime, pod types.UID) lifecycle.ContainerState {
	t.Helper()
	p := simplePod()
	p.UID = pod
	o, err := r.Observe(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Containers) == 0 {
		return ""
	}
	return o.Containers[0].State
}

// What was seen is not asked for again until something says that it is old; and
// then only what changed is asked for in detail.
func TestObservationsAreKept(t *testing.T) {
	f := newFakeCRI()
	r := onFake(t, f)
	f.put(simplePod(), running)
	for range 5 {
		observeState(t, r, "u1")
	}
	if n := f.count("ListContainers"); n != 1 {
		t.Errorf("listed %d times, want 1", n)
	}
	r.seen.outdate("u1")
	observeState(t, r, "u1")
	want := map[string]int{"ListContainers": 2, "ListPodSandbox": 2, "ContainerStatus": 1, "PodSandboxStatus": 1}
	if diff := cmp.Diff(want, f.calls); diff != "" {
		t.Errorf("calls (-want +got)\n%s", diff)
	}
	f.put(simplePod(), exited)
	r.seen.outdate("u1")
	if s := observeState(t, r, "u1"); s != lifecycle.ContainerExited {
		t.Errorf("seen as %s", s)
	}
}

// An event that comes while the runtime is being asked makes the answer old.
func TestEventsDuringALookAreNotLost(t *testing.T) {
	f := newFakeCRI()
	r := onFake(t, f)
	f.put(simplePod(), running)
	f.onList = func() {
		f.change(func() { f.onList = nil })
		f.put(simplePod(), exited)
		r.seen.outdate("u1")
	}
	observeState(t, r, "u1")
	if s := observeState(t, r, "u1"); s != lifecycle.ContainerExited {
		t.Errorf("then seen as %s", s)
	}
}

// A failed look leaves what was known, and is made again.
func TestFailedLooksAreMadeAgain(t *testing.T) {
	f := newFakeCRI()
	r := onFake(t, f)
	f.put(simplePod(), running)
	observeState(t, r, "u1")
	f.change(func() { f.err = errors.New("connection refused") })
	r.seen.outdate("u1")
	if _, err := r.Observe(t.Context(), simplePod()); err == nil {
		t.Error("no error while the runtime is away")
	}
	f.change(func() { f.err = nil })
	f.put(simplePod(), exited)
	if s := observeState(t, r, "u1"); s != lifecycle.ContainerExited {
		t.Errorf("then seen as %s", s)
	}
}

// The time of a look follows the clock when that is set: it is the same moment.
func TestTheClockIsSet(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	for _, c := range []struct{ wall, elapsed, want time.Duration }{
		{10 * time.Minute, 10 * time.Minute, 0},
		{10*time.Minute + 300*time.Millisecond, 10 * time.Minute, 0}, // drift
		{70 * time.Minute, 10 * time.Minute, time.Hour},
		{-50 * time.Minute, 10 * time.Minute, -time.Hour},
	} {
		if got := byTheClock(at, at.Add(c.wall), c.elapsed).Sub(at); got != c.want {
			t.Errorf("%s later by the wall, %s in truth: moved by %s, want %s", c.wall, c.elapsed, got, c.want)
		}
	}
}

func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	f := newFakeCRI()
	r := onFake(t, f)
	f.put(simplePod(), running)
	observeState(t, r, "u1")
	f.change(func() { clear(f.conts); clear(f.boxes) })
	r.seen.outdate("u1")
	if s := observeState(t, r, "u1"); s != "" {
		t.Errorf("seen as %s", s)
	}
	if len(r.seen.pods) != 0 || len(r.seen.owner) != 0 {
		t.Errorf("kept %v, %v", r.seen.pods, r.seen.owner)
	}
}

// listen runs Events in a bubble and returns what it pokes.
func listen(t *testing.T, r *Runtime) (pokes chan types.UID, stop func()) {
	pokes = make(chan types.UID, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Events(ctx, func(uid types.UID) { pokes <- uid }) }()
	return pokes, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func poked(pokes chan types.UID) (uids []types.UID) {
	synctest.Wait()
	for len(pokes) > 0 {
		uids = append(uids, <-pokes)
	}
	return uids
}

func TestEventsPokeAndOutdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCRI()
		events := make(chan *runtimeapi.ContainerEventResponse)
		f.stream = func(ctx context.Context, out chan<- *runtimeapi.ContainerEventResponse, connected func()) error {
			connected()
			for {
				select {
				case e := <-events:
					out <- e // as cri-client does: without looking at ctx
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		r := onFake(t, f)
		f.put(simplePod(), running)
		observeState(t, r, "u1")
		pokes, stop := listen(t, r)
		defer stop()
		if got := poked(pokes); !cmp.Equal(got, []types.UID{"u1"}) {
			t.Errorf("at connection poked %v", got)
		}
		observeState(t, r, "u1")
		// The event of a container whose sandbox is gone does not name the pod.
		f.put(simplePod(), exited)
		events <- &runtimeapi.ContainerEventResponse{ContainerId: "app-u1"}
		if got := poked(pokes); !cmp.Equal(got, []types.UID{"u1"}) {
			t.Errorf("poked %v", got)
		}
		if s := observeState(t, r, "u1"); s != lifecycle.ContainerExited {
			t.Errorf("seen as %s", s)
		}
		events <- &runtimeapi.ContainerEventResponse{ContainerId: "x",
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "other"}}}
		if got := poked(pokes); !cmp.Equal(got, []types.UID{"other"}) {
			t.Errorf("poked %v", got)
		}
	})
}

// A change without an event is found by the comparison, once.
func TestLostEventsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCRI()
		f.stream = func(ctx context.Context, _ chan<- *runtimeapi.ContainerEventResponse, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		}
		r := onFake(t, f)
		f.put(simplePod(), running)
		observeState(t, r, "u1")
		pokes, stop := listen(t, r)
		defer stop()
		f.put(simplePod(), exited)
		time.Sleep(61 * time.Second)
		if got := poked(pokes); !cmp.Equal(got, []types.UID{"u1"}) {
			t.Errorf("poked %v", got)
		}
		if s := observeState(t, r, "u1"); s != lifecycle.ContainerExited {
			t.Errorf("seen as %s", s)
		}
		time.Sleep(10 * time.Minute)
		if got := poked(pokes); len(got) != 0 {
			t.Errorf("poked %v though nothing changed", got)
		}
	})
}

// While there is no stream, all is compared each second; when it is back, all
// is looked at anew.
func TestLostStreams(t *testing.T) {
	for name, lost := range map[string]error{
		"broken":        errors.New("EOF"),
		"not supported": status.Error(codes.Unimplemented, "no events"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCRI()
				f.stream = func(context.Context, chan<- *runtimeapi.ContainerEventResponse, func()) error { return lost }
				r := onFake(t, f)
				f.put(simplePod(), running)
				observeState(t, r, "u1")
				pokes, stop := listen(t, r)
				defer stop()
				time.Sleep(10*time.Second + 500*time.Millisecond)
				f.put(simplePod(), exited)
				time.Sleep(time.Second)
				if got := poked(pokes); !cmp.Equal(got, []types.UID{"u1"}) {
					t.Errorf("poked %v", got)
				}
				if n := f.count("GetContainerEvents"); name == "not supported" && n != 1 || name == "broken" && n < 10 {
					t.Errorf("asked for events %d times", n)
				}
			})
		})
	}
}

func TestEndsArePutIntoTheAPIsWords(t *testing.T) {
	for reason, want := range map[string]lifecycle.Container{
		"StartError":             {Reason: "ContainerCannotRun", ExitCode: 128},
		"ContainerStatusUnknown": {Reason: "ContainerStatusUnknown", ExitCode: 128, ExitUnknown: true},
		"Unknown":                {Reason: "ContainerStatusUnknown", ExitCode: 128, ExitUnknown: true},
		"OOMKilled":              {Reason: "OOMKilled", ExitCode: 128},
	} {
		got := containerOf(&runtimeapi.ContainerStatus{State: exited, Reason: reason, ExitCode: 128})
		if got.Reason != want.Reason || got.ExitUnknown != want.ExitUnknown {
			t.Errorf("%s became %+v", reason, got)
		}
	}
}

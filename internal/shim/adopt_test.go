package shim_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// Kill the shim again and again while a container writes: it must not notice,
// no line may be lost, and the exit code must be right.
func TestKilledShimLosesNothing(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "lines", "1000", "4")
	n.start(r)
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		n.killShim()
		if _, err := n.List(n.ctx); err != nil { // starts the next one
			t.Fatal(err)
		}
	}
	list, err := n.List(n.ctx)
	if err != nil || len(list) != 1 || list[0].State != shim.Running || list[0].StartedAt.IsZero() {
		t.Fatalf("list %+v, %v", list, err)
	}
	if e := n.wait("a"); !e.Known || e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
	want := make([]string, 1000)
	for i := range want {
		want[i] = fmt.Sprintf("stdout F line %d", i)
	}
	if got := n.entries(r.LogPath); !slices.Equal(got, want) {
		t.Errorf("log has %d entries: %q", len(got), got)
	}
}

// The exit code of an adopted container is right, whether its new parent has
// reaped it when the shim looks or not. Kernels before 6.15 forget it with the
// process, and then none is invented.
func TestAdoptedContainerExits(t *testing.T) {
	for name, reapAtOnce := range map[string]bool{"reaped": true, "zombie": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.bundle("a", nil, "trap")
			n.start(r)
			n.logHas(r.LogPath, "ready")
			list, err := n.List(n.ctx)
			if err != nil {
				t.Fatal(err)
			}
			n.killShim()
			if _, err := n.List(n.ctx); err != nil {
				t.Fatal(err)
			}
			pid := list[0].PID
			var reaper sync.WaitGroup
			if reapAtOnce {
				reaper.Go(func() { _, _ = syscall.Wait4(pid, nil, 0, nil) })
			}
			if err := n.Signal(n.ctx, "a", syscall.SIGTERM, false); err != nil {
				t.Fatal(err)
			}
			// Reaping may still come too late for the kernel to forget.
			e := n.wait("a")
			unknown := reapAtOnce && !kernelKeepsExits(t) && !e.Known && e.Code == 0
			if (!e.Known || e.Code != 42) && !unknown {
				t.Errorf("exit is %+v, want code 42", e)
			}
			if log := n.read(r.LogPath); strings.Contains(log, "berth:") {
				t.Errorf("the log speaks of lost lines although a shim read them all:\n%s", log)
			}
			reaper.Wait()
			if !reapAtOnce {
				_, _ = syscall.Wait4(pid, nil, 0, nil)
			}
		})
	}
}

// kernelKeepsExits says whether the kernel tells how a process ended after it was
// reaped: Linux 6.15 and newer.
func kernelKeepsExits(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 15
}

// A container that ends and is reaped while no shim lives has an unknown exit
// code: none is invented. Its log says that lines may be missing, also if its exit
// code is still to be had.
func TestEndWithoutShimIsUnknown(t *testing.T) {
	for name, reaped := range map[string]bool{"reaped": true, "zombie": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.bundle("a", nil, "trap")
			n.start(r)
			n.logHas(r.LogPath, "ready")
			list, err := n.List(n.ctx)
			if err != nil {
				t.Fatal(err)
			}
			pid := list[0].PID
			n.killShim()
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if reaped {
				_, err = syscall.Wait4(pid, nil, 0, nil)
			} else {
				err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			e := n.wait("a")
			if reaped && (e.Known || e.Code != 0 || e.Signal != 0) {
				t.Errorf("exit is %+v, want an unknown one", e)
			}
			if !reaped {
				if !e.Known || e.Code != 42 {
					t.Errorf("exit is %+v, want code 42", e)
				}
				_, _ = syscall.Wait4(pid, nil, 0, nil)
			}
			if got := strings.Count(n.read(r.LogPath), unreadNote); got != 1 {
				t.Errorf("%d notes in the log:\n%s", got, n.read(r.LogPath))
			}
		})
	}
}

// unreadNote is what the log of a container says that ended unread.
const unreadNote = " stderr F berth: lines may be missing here: no shim was running when the container ended\n"

// An incomplete line that the killed shim had read is completed by the next one.
func TestKilledShimKeepsHalfALine(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "cat")
	r.Stdin = true
	n.start(r)
	attached := make(chan error, 1)
	in := &pausingReader{pieces: make(chan string)}
	go func() { attached <- n.Attach(n.ctx, shim.AttachRequest{ID: "a", Stdin: in}) }()
	in.pieces <- "first "
	n.until("the shim has read it", func() bool { return strings.HasSuffix(tail(n, "a"), "first ") })
	n.killShim()
	<-attached
	if _, err := n.List(n.ctx); err != nil {
		t.Fatal(err)
	}
	go func() { attached <- n.Attach(n.ctx, shim.AttachRequest{ID: "a", Stdin: strings.NewReader("second\n")}) }()
	n.logHas(r.LogPath, "stdout F first second\n")
	if err := <-attached; err != nil {
		t.Error(err)
	}
	close(in.pieces)
}

func tail(n *node, id string) string {
	b, _ := os.ReadFile(n.run + "/containers/" + id + "/stdout.tail")
	return string(b)
}

type pausingReader struct{ pieces chan string }

func (r *pausingReader) Read(p []byte) (int, error) {
	s, ok := <-r.pieces
	if !ok {
		return 0, fmt.Errorf("closed")
	}
	return copy(p, s), nil
}

// Kill the shim at random moments of creating, starting and deleting: what is
// left is either nothing or a container the next shim knows and can delete.
func TestKilledAtAnyMoment(t *testing.T) {
	n := newNode(t)
	for i := range 25 {
		id := fmt.Sprintf("c%d", i)
		r := n.bundle(id, nil, "init")
		var work sync.WaitGroup
		work.Go(func() {
			if _, err := n.Create(n.ctx, r); err != nil {
				return
			}
			if _, err := n.Start(n.ctx, id); err != nil {
				return
			}
			_ = n.Delete(n.ctx, id)
		})
		time.Sleep(time.Duration(i) * 1500 * time.Microsecond)
		n.killShim()
		work.Wait()
		list, err := n.List(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if err := n.Delete(n.ctx, s.ID); err != nil {
				t.Errorf("killed after %d steps: cannot delete %+v: %v", i, s, err)
			}
		}
	}
	n.until("no process is left", func() bool {
		for pid, err := 1, error(nil); pid > 0 && err == nil; {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // what killed shims left to us
		}
		return len(childrenOf(n.shimPID())) == 0
	})
}

func TestTwoEnsuresStartOneShim(t *testing.T) {
	n := newNode(t)
	n.killShim()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			c, err := shim.Ensure(n.ctx, n.config())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.List(n.ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := strings.Count(n.shimLog(), `msg="shim serves"`); got != 2 {
		t.Errorf("%d shims have served, want the first and one more\n%s", got, n.shimLog())
	}
}

// A terminal survives the shim.
func TestTerminalSurvivesTheShim(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) { s.Process.Terminal = true }, "size")
	r.TTY = true
	n.start(r)
	if err := n.Resize(n.ctx, "a", "", 100, 40); err != nil {
		t.Fatal(err)
	}
	n.logHas(r.LogPath, "100x40")
	n.killShim()
	if err := n.Resize(n.ctx, "a", "", 120, 50); err != nil {
		t.Fatal(err)
	}
	n.logHas(r.LogPath, "120x50")
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Signal != 9 {
		t.Errorf("exit is %+v", e)
	}
}

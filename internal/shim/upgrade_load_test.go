package shim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// consecutive checks that each line of what was written follows the one before, from
// any on if it is not the whole, and returns how many there are and the last one.
func consecutive(t *testing.T, what, written string, whole bool) (count, last int) {
	t.Helper()
	next := -1
	if whole {
		next = 0
	}
	for line := range strings.Lines(written) {
		var got int
		if _, err := fmt.Sscanf(line, "line %d\n", &got); err != nil {
			t.Fatalf("%s: %.200q is no line", what, line)
		}
		if next >= 0 && got != next {
			t.Fatalf("%s: line %d where %d should be", what, got, next)
		}
		next = got + 1
		count++
	}
	return count, next - 1
}

// execRuns waits until something runs in a cgroup of an exec below the container's.
func (n *node) execRuns(id string) {
	n.Helper()
	n.until("the exec runs", func() bool {
		for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
			found, _ := filepath.Glob(pattern + n.cgroup + "/" + id + "/berth-exec-*/cgroup.procs")
			for _, f := range found {
				if b, _ := os.ReadFile(f); len(b) > 0 {
					return true
				}
			}
		}
		return false
	})
}

// Under load an upgrade is not noticed: containers that write 10,000 lines a second
// each, an attached reader and an attached writer, a long exec, one with a terminal,
// checks by exec, starts, stops and ends go on in the same process, and nothing is
// lost, doubled or cut.
func TestUpgradesUnderLoad(t *testing.T) {
	const lines, upgrades = 60_000, 6
	n := newNode(t)
	var all sync.WaitGroup
	for i := range 3 {
		id := fmt.Sprintf("steady%d", i)
		r := n.bundle(id, nil, "rate", fmt.Sprint(lines), "10000", fmt.Sprint(10+i))
		n.start(r)
		all.Go(func() {
			if e, err := n.Wait(n.ctx, id); err != nil || !e.Known || e.Code != int32(10+i) {
				t.Errorf("exit of %s is %+v, %v", id, e, err)
			}
		})
	}
	var heard buffer
	all.Go(func() {
		if err := n.Attach(n.ctx, shim.AttachRequest{ID: "steady0", Stdout: &heard}); err != nil {
			t.Errorf("attach: %v", err)
		}
	})
	echo := n.bundle("echo", nil, "cat")
	echo.Stdin, echo.StdinOnce = true, true
	n.start(echo)
	all.Go(func() {
		in, w, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		go func() {
			defer w.Close()
			for i := range lines / 2 {
				if i%50 == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				fmt.Fprintf(w, "line %d\n", i)
			}
		}()
		if err := n.Attach(n.ctx, shim.AttachRequest{ID: "echo", Stdin: in}); err != nil {
			t.Errorf("attach with input: %v", err)
		}
	})
	n.start(n.bundle("a", nil, "init"))
	var said buffer
	all.Go(func() {
		e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("rate", fmt.Sprint(lines), "10000", "7"), Stdout: &said})
		if err != nil || e.Code != 7 || !e.Known {
			t.Errorf("exec: %+v, %v", e, err)
		}
	})
	n.execRuns("a")
	ctx, stop := context.WithCancel(n.ctx)
	counts := make([]int, 2)
	repeated := func(i int, call func(number int) error) {
		all.Go(func() {
			for ; ctx.Err() == nil; counts[i]++ {
				if err := call(counts[i]); err != nil {
					t.Errorf("call %d: %v", counts[i], err)
					return
				}
			}
		})
	}
	repeated(0, func(int) error {
		var out buffer
		e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("echo", "hello"), Stdout: &out, Timeout: 20 * time.Second})
		if err == nil && (e.Code != 0 || out.String() != "hello\n") {
			err = fmt.Errorf("exec says %q, %+v", out.String(), e)
		}
		return err
	})
	repeated(1, func(number int) error {
		id := fmt.Sprintf("c%d", number)
		if _, err := n.Create(n.ctx, n.bundle(id, nil, "exit", "9")); err != nil {
			return err
		}
		if _, err := n.Start(n.ctx, id); err != nil {
			return err
		}
		if e, err := n.Wait(n.ctx, id); err != nil || e.Code != 9 || !e.Known {
			return fmt.Errorf("wait says %+v, %w", e, err)
		}
		return n.Delete(n.ctx, id)
	})
	for i := range upgrades {
		n.upgrade([]string{nextBinary, shimBinary}[i%2])
		time.Sleep(200 * time.Millisecond)
	}
	stop()
	all.Wait()
	for i := range 3 {
		id := fmt.Sprintf("steady%d", i)
		if got := n.numbered(filepath.Join(n.dir, id, "log")); got != lines {
			t.Errorf("log of %s has %d lines", id, got)
		}
	}
	if count, last := consecutive(t, "attached", heard.String(), false); last != lines-1 || count == 0 {
		t.Errorf("%d lines attached, the last is %d", count, last)
	}
	if count, _ := consecutive(t, "exec", said.String(), true); count != lines {
		t.Errorf("%d lines of the exec", count)
	}
	if e := n.wait("echo"); e.Code != 0 || !e.Known {
		t.Errorf("exit of echo is %+v", e)
	}
	log := n.entries(echo.LogPath)
	if got := len(log) - 1; got != lines/2 || log[got] != "stdout F end of input" {
		t.Errorf("echo has %d lines", got)
	}
	for i, line := range log[:len(log)-1] {
		if want := fmt.Sprintf("stdout F line %d", i); line != want {
			t.Fatalf("echo has %q where %q should be", line, want)
		}
	}
	if counts[0] == 0 || counts[1] == 0 {
		t.Errorf("%d execs and %d containers: too few to say anything", counts[0], counts[1])
	}
}

// Input that a container has not read yet outlasts upgrades, wherever it is.
func TestUpgradeKeepsUnreadInput(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "cat")
	r.Stdin, r.StdinOnce = true, true
	n.start(r)
	list, err := n.List(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(list[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const lines = 60_000 // more than FIFO, pipe and the shim hold
	var in strings.Builder
	for i := range lines {
		fmt.Fprintf(&in, "line %d\n", i)
	}
	attached := make(chan error, 1)
	go func() {
		attached <- n.Attach(n.ctx, shim.AttachRequest{ID: "a", Stdin: strings.NewReader(in.String())})
	}()
	n.until("the input is full", func() bool { return n.pending(filepath.Join(n.run, "containers", "a", "stdin")) > 60_000 })
	n.upgrade(nextBinary)
	n.upgrade(shimBinary)
	if err := syscall.Kill(list[0].PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n.upgrade(nextBinary)
	if err := <-attached; err != nil {
		t.Error(err)
	}
	if e := n.wait("a"); e.Code != 0 || !e.Known {
		t.Errorf("exit is %+v", e)
	}
	log := n.entries(r.LogPath)
	if len(log) != lines+1 {
		t.Errorf("%d lines", len(log))
	}
	for i, line := range log[:len(log)-1] {
		if want := fmt.Sprintf("stdout F line %d", i); line != want {
			t.Fatalf("%q where %q should be", line, want)
		}
	}
}

// Time-outs, cancellation and the end of a client mean for an exec after an upgrade
// what they did before.
func TestExecsEndAfterUpgrade(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	quiet := func() {
		t.Helper()
		n.until("only the first process is left", func() bool {
			var out buffer
			_, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("procs"), Stdout: &out})
			return err == nil && out.String() == "2 [0]\n"
		})
	}
	type result struct {
		shim.Exit
		error
	}
	begin := func(ctx context.Context, c *shim.Client, r shim.ExecRequest) <-chan result {
		ended := make(chan result, 1)
		r.ID, r.Process = "a", process("tree", "2")
		var out buffer
		r.Stdout = &out
		go func() {
			e, err := c.Exec(ctx, r)
			ended <- result{e, err}
		}()
		n.until("the tree is grown", func() bool { return strings.Contains(out.String(), "grown") })
		return ended
	}

	ended := begin(n.ctx, n.Client, shim.ExecRequest{Timeout: 3 * time.Second})
	n.upgrade(nextBinary)
	if r := <-ended; !errors.Is(r.error, context.DeadlineExceeded) || r.Signal != int32(syscall.SIGKILL) {
		t.Errorf("after its time-out: %+v", r)
	}
	quiet()

	ctx, cancel := context.WithCancel(n.ctx)
	ended = begin(ctx, n.Client, shim.ExecRequest{})
	n.upgrade(shimBinary)
	cancel()
	if r := <-ended; !errors.Is(r.error, context.Canceled) || r.Signal != int32(syscall.SIGKILL) {
		t.Errorf("cancelled: %+v", r)
	}
	quiet()

	other, err := shim.Dial(n.ctx, n.run, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended = begin(n.ctx, other, shim.ExecRequest{})
	n.upgrade(nextBinary)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if r := <-ended; !errors.Is(r.error, shim.ErrGone) {
		t.Errorf("its client has left: %+v", r)
	}
	quiet()

	// Execs that begin after an upgrade don't get in the way of those before.
	ended = begin(n.ctx, n.Client, shim.ExecRequest{})
	n.upgrade(shimBinary)
	for range 5 {
		if e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("exit", "3")}); err != nil || e.Code != 3 {
			t.Errorf("exec: %+v, %v", e, err)
		}
	}
	select {
	case r := <-ended:
		t.Errorf("ended by others: %+v", r)
	default:
	}
	if err := n.Delete(n.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.error != nil || r.Signal != int32(syscall.SIGKILL) {
		t.Errorf("its container is deleted: %+v", r)
	}
}

// Terminals of containers and execs stay what they are for who is attached.
func TestUpgradeKeepsTerminals(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "init"))
	p := process("size")
	p.Terminal = true
	var out buffer
	sizes := make(chan shim.Size)
	ended := make(chan error, 1)
	go func() {
		e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", ExecID: "e", Process: p, TTY: true, Stdout: &out, Resize: sizes})
		if e.Signal != int32(syscall.SIGHUP) {
			err = errors.Join(err, fmt.Errorf("exit is %+v", e))
		}
		ended <- err
	}()
	n.until("it says its size", func() bool { return strings.Contains(out.String(), "x") })
	n.upgrade(nextBinary)
	if err := n.Resize(n.ctx, "a", "e", 91, 31); err != nil {
		t.Fatal(err)
	}
	n.until("it sees the size", func() bool { return strings.Contains(out.String(), "91x31\r\n") })
	n.upgrade(shimBinary)
	close(sizes)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Kill the shim at any moment of an upgrade: the next one adopts what is there, and
// loses no line.
func TestKilledDuringUpgrade(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "rate", "100000000", "10000")
	n.start(r)
	for i := range 24 {
		if _, err := n.List(n.ctx); err != nil { // starts the next one
			t.Fatal(err)
		}
		pid := n.shimPID()
		done := make(chan error, 1)
		go func() { done <- n.Upgrade(n.ctx, nextBinary) }()
		if i%2 == 0 { // before it, or in it, or after
			time.Sleep(time.Duration(i) * 5 * time.Millisecond)
		} else { // the new program has just begun
			n.until("it is another program", func() bool {
				now, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
				return err == nil && now == nextBinary
			})
			time.Sleep(time.Duration(i) * 500 * time.Microsecond)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		reap(pid)
		<-done // it says what it knows
	}
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Known && e.Signal != int32(syscall.SIGKILL) {
		t.Errorf("exit is %+v", e)
	}
	if got := n.numbered(r.LogPath); got == 0 {
		t.Error("no line")
	}
}

// pending is how many bytes a FIFO holds.
func (n *node) pending(path string) int {
	n.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		n.Fatal(err)
	}
	defer unix.Close(fd)
	count, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		n.Fatal(err)
	}
	return count
}

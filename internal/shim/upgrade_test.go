package shim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

// upgrade replaces the shim's program, and checks that it is the same process.
func (n *node) upgrade(binary string) {
	n.Helper()
	pid := n.shimPID()
	if err := n.Upgrade(n.ctx, binary); err != nil {
		n.Fatalf("%v\n%s", err, n.shimLog())
	}
	if now := n.shimPID(); now != pid {
		n.Fatalf("the shim was process %d and is %d\n%s", pid, now, n.shimLog())
	}
}

// numbered checks that each line of a log follows the one before, and returns how
// many there are.
func (n *node) numbered(path string) int {
	n.Helper()
	next := 0
	for _, got := range n.entries(path) {
		if want := fmt.Sprintf("stdout F line %d", next); got != want {
			n.Fatalf("%.200q where line %d of %s should be", got, next, path)
		}
		next++
	}
	return next
}

// running is the program of a process.
func (n *node) running(pid int) string {
	n.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		n.Fatal(err)
	}
	return path
}

// openFiles lists the descriptors of the shim by what they are.
func (n *node) openFiles() []string {
	n.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", n.shimPID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		n.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		kind, _, _ := strings.Cut(target, "[") // socket:[123]: numbers differ
		list = append(list, kind)
	}
	slices.Sort(list)
	return list
}

// Each line is in the log once, in order and whole, however often the shim is
// upgraded while containers write, and they end as they end.
func TestUpgradesLoseNothing(t *testing.T) {
	const lines = 40_000
	n := newNode(t)
	steady := n.bundle("steady", nil, "rate", fmt.Sprint(lines), "10000")
	flood := n.bundle("flood", nil, "lines", "400000")
	n.start(steady)
	n.start(flood)
	upgrades := 0
	for ; upgrades < 12; upgrades++ {
		list, err := n.List(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list, func(s shim.Status) bool { return s.State == shim.Running }) {
			break
		}
		n.upgrade([]string{nextBinary, shimBinary}[upgrades%2])
		time.Sleep(100 * time.Millisecond) // it is in the midst of it
	}
	if upgrades < 3 {
		t.Fatalf("the containers ended after %d upgrades", upgrades)
	}
	for path, count := range map[string]int{steady.LogPath: lines, flood.LogPath: 400_000} {
		id := filepath.Base(filepath.Dir(path))
		if e := n.wait(id); !e.Known || e.Code != 0 {
			t.Errorf("exit of %s is %+v", id, e)
		}
		if got := n.numbered(path); got != count {
			t.Errorf("%s: %d lines of %d after %d upgrades", id, got, count, upgrades)
		}
	}
}

// Containers that end at any moment of an upgrade have ended as the kernel says,
// with all they wrote, and whoever waits learns it.
func TestEndsDuringUpgrade(t *testing.T) {
	n := newNode(t)
	ctx, stop := context.WithCancel(n.ctx)
	var mu sync.Mutex
	seen := make(map[string]*shim.Exit)
	var events sync.WaitGroup
	events.Go(func() {
		_ = n.Events(ctx, func(e shim.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == shim.ContainerExited {
				seen[e.ID] = e.Exit
			}
		})
	})
	const rounds, each = 4, 6
	var ids []string
	for round := range rounds {
		var waits sync.WaitGroup
		for i := range each {
			id := fmt.Sprintf("c%d-%d", round, i)
			ids = append(ids, id)
			r := n.bundle(id, nil, "trap")
			n.start(r)
			n.logHas(r.LogPath, "ready")
			waits.Go(func() { // from before the upgrade
				if e, err := n.Wait(n.ctx, id); err != nil || !e.Known || e.Code != 42 {
					t.Errorf("wait for %s: %+v, %v", id, e, err)
				}
			})
		}
		list, err := n.List(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		waits.Go(func() {
			for _, s := range list {
				if s.State == shim.Running {
					time.Sleep(5 * time.Millisecond)
					_ = syscall.Kill(s.PID, syscall.SIGTERM)
				}
			}
		})
		n.upgrade(nextBinary)
		waits.Wait()
	}
	n.until("all ends are reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == rounds*each
	})
	stop()
	events.Wait()
	for _, id := range ids {
		if e := seen[id]; !e.Known || e.Code != 42 {
			t.Errorf("exit of %s is reported as %+v", id, e)
		}
		if log := n.entries(filepath.Join(n.dir, id, "log")); !slices.Equal(log, []string{"stdout F ready"}) {
			t.Errorf("log of %s: %q", id, log)
		}
	}
}

// An upgrade keeps input, terminals, half lines, renamed logs and created
// containers; descriptors neither leak nor are lost.
func TestUpgradeKeepsWhatIsOpen(t *testing.T) {
	n := newNode(t)
	once := n.bundle("once", nil, "cat")
	once.Stdin, once.StdinOnce = true, true
	n.start(once)
	tty := n.bundle("tty", func(s *specs.Spec) { s.Process.Terminal = true }, "size")
	tty.TTY = true
	n.start(tty)
	half := n.bundle("half", nil, "cat")
	half.Stdin = true
	n.start(half)
	waits := n.bundle("waits", nil, "echo", "it ran")
	if _, err := n.Create(n.ctx, waits); err != nil {
		t.Fatal(err)
	}
	in := &pausingReader{pieces: make(chan string)}
	ctx, stop := context.WithCancel(n.ctx)
	attached := make(chan error, 1)
	go func() { attached <- n.Attach(ctx, shim.AttachRequest{ID: "half", Stdin: in}) }()
	in.pieces <- "half a "
	n.until("half a line is read", func() bool {
		b, _ := os.ReadFile(filepath.Join(n.run, "containers", "half", "stdout.tail"))
		return string(b) == "half a "
	})
	stop()
	<-attached

	// inherited is what a process has from the shim.
	inherited := func(id string) []string {
		t.Helper()
		signals, files := n.bundle(id+"-signals", nil, "status", "SigBlk:", "SigIgn:"), n.bundle(id+"-files", nil, "fds")
		n.start(signals)
		n.start(files)
		n.wait(signals.ID)
		n.wait(files.ID)
		list := n.entries(signals.LogPath)
		for _, file := range n.entries(files.LogPath) {
			file, _, _ = strings.Cut(strings.ReplaceAll(file, id, ""), "[") // pipe:[123]: numbers differ
			list = append(list, file)
		}
		return list
	}
	first := inherited("first")

	renamed := tty.LogPath + ".old"
	if err := os.Rename(tty.LogPath, renamed); err != nil {
		t.Fatal(err)
	}
	n.upgrade(nextBinary)
	before := n.openFiles()
	n.upgrade(shimBinary)
	n.upgrade(nextBinary)
	if after := n.openFiles(); !slices.Equal(before, after) {
		t.Errorf("open after one upgrade:\n%q\nafter three:\n%q", before, after)
	}
	if after := inherited("then"); !slices.Equal(after, first) {
		t.Errorf("a process has\n%q\nand had before the upgrades\n%q", after, first)
	}

	if err := n.Resize(n.ctx, "tty", "", 90, 30); err != nil {
		t.Fatal(err)
	}
	n.logHas(renamed, "90x30")
	if _, err := os.Stat(tty.LogPath); err == nil {
		t.Error("the log was opened anew before its owner asked for it")
	}
	for _, id := range []string{"once", "half"} {
		if err := n.Attach(n.ctx, shim.AttachRequest{ID: id, Stdin: strings.NewReader("line\n")}); err != nil {
			t.Errorf("attach to %s: %v", id, err)
		}
	}
	if e := n.wait("once"); !e.Known || e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
	if got, want := n.entries(once.LogPath), []string{"stdout F line", "stdout F end of input"}; !slices.Equal(got, want) {
		t.Errorf("log is %q, want %q", got, want)
	}
	n.logHas(half.LogPath, "stdout F half a line\n")
	if _, err := n.Start(n.ctx, "waits"); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("waits"); !e.Known || e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
	n.logHas(waits.LogPath, "stdout F it ran\n")
}

// What must not be cut off makes an upgrade wait, or be refused, and then all goes
// on as before.
func TestUpgradeIsRefused(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "lines", "100000", "1")
	n.start(r)
	pid := n.shimPID()
	script := func(text string) string {
		path := filepath.Join(n.dir, "program")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		return path
	}
	check := func(name, binary string, want error) {
		t.Helper()
		err := n.Upgrade(n.ctx, binary)
		if err == nil || errors.Is(err, shim.ErrGone) || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if now := n.shimPID(); now != pid || n.running(pid) != shimBinary {
			t.Fatalf("%s: process %d runs %s", name, now, n.running(now))
		}
		if e, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("exit", "3")}); err != nil || e.Code != 3 {
			t.Errorf("%s: then an exec says %+v, %v", name, e, err)
		}
	}
	check("absent", filepath.Join(n.dir, "nothing"), nil)
	check("a relative path", "berth-shim", nil)
	check("no shim", script("echo hello"), nil)
	check("an older protocol", script(`echo '{"version":"old","protocol":0,"state":1,"handover":1}'`), nil)
	check("a newer protocol only", script(`echo '{"version":"new","protocol":99,"minProtocol":98,"state":1,"handover":1}'`), nil)
	check("older state", script(`echo '{"version":"old","protocol":2,"minProtocol":1,"handover":1}'`), nil)
	// It says so rightly, and then is no program: execve itself fails.
	vanishing := script(`rm "$0"; echo '{"version":"x","protocol":2,"minProtocol":1,"state":1,"handover":1}'`)
	check("gone in between", vanishing, nil)

	// What is there can't be read by the next program.
	broken := filepath.Join(n.run, "containers", "broken")
	if err := os.MkdirAll(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "state.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("strange state", nextBinary, nil)
	if err := n.Upgrade(n.ctx, nextBinary); err == nil || !strings.Contains(err.Error(), `it says: berth-shim: cannot go on with container "broken": version is 0, want 1`) {
		t.Errorf("strange state: %v", err)
	}
	if err := os.RemoveAll(broken); err != nil {
		t.Fatal(err)
	}

	// A call that takes long, of this client and of another one.
	other, err := shim.Dial(n.ctx, n.run, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	busy := filepath.Join(n.dir, "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	slow := n.bundle("slow", func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo > " + busy + ".begun; while [ -e " + busy + " ]; do sleep 0.1; done"}}}}
	}, "exit", "4")
	ended := make(chan error, 1)
	go func() {
		_, err := n.Create(n.ctx, slow)
		ended <- err
	}()
	n.until("the hook runs", func() bool {
		_, err := os.Stat(busy + ".begun")
		return err == nil
	})
	if err := n.Upgrade(n.ctx, nextBinary); !errors.Is(err, shim.ErrState) {
		t.Errorf("with a call of this client: %v", err)
	}
	if err := other.Upgrade(n.ctx, nextBinary); !errors.Is(err, shim.ErrState) {
		t.Errorf("with a call of another client: %v", err)
	}
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the call: %v", err)
	}
	n.upgrade(nextBinary)
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Signal != int32(syscall.SIGKILL) {
		t.Errorf("exit is %+v", e)
	}
	n.numbered(r.LogPath)
	if _, err := n.Start(n.ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("slow"); e.Code != 4 {
		t.Errorf("exit is %+v", e)
	}
}

// A new program that is right by its own account and ends at once costs no
// container: the next shim takes them over.
func TestUpgradeToABrokenProgram(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "lines", "1000000", "1")
	n.start(r)
	pid := n.shimPID()
	path := filepath.Join(n.dir, "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = serve ] && exit 1\nexec "+shimBinary+" \"$@\"\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Upgrade(n.ctx, path) }()
	reap(pid)
	if err := <-done; err == nil {
		t.Error("the upgrade is said to have succeeded")
	}
	if now := n.shimPID(); now == pid {
		t.Errorf("process %d serves still", pid)
	}
	read := len(n.entries(r.LogPath))
	n.until("the next shim reads on", func() bool { return len(n.entries(r.LogPath)) > read })
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Known && e.Signal != int32(syscall.SIGKILL) {
		t.Errorf("exit is %+v", e)
	}
	n.numbered(r.LogPath)
}

// Ensure upgrades a shim that runs another program than the one installed, and
// leaves alone one that runs the same.
func TestEnsureUpgrades(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "trap")
	n.start(r)
	n.logHas(r.LogPath, "ready")
	pid := n.shimPID()
	for _, binary := range []string{shimBinary, nextBinary, nextBinary} {
		cfg := n.config()
		cfg.Binary = binary
		c, err := shim.Ensure(n.ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if now := n.shimPID(); now != pid || n.running(pid) != binary {
			t.Errorf("process %d runs %s, want %d and %s", now, n.running(now), pid, binary)
		}
	}
	if got := strings.Count(n.shimLog(), "the shim is upgraded"); got != 1 {
		t.Errorf("%d upgrades", got)
	}
	if err := n.Signal(n.ctx, "a", syscall.SIGTERM, false); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Code != 42 {
		t.Errorf("exit is %+v", e)
	}
}

package server

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// oomWatch notices that the kernel killed a process of a cgroup for want of
// memory. A nil one watches nothing.
type oomWatch struct {
	once  sync.Once
	mu    sync.Mutex // held while the descriptors are read or closed
	watch *watch
	fds   []int // the first one is watched
}

// memoryPath returns the cgroup that counts the container's memory.
func memoryPath(paths map[string]string) (path string, unified bool) {
	if p := paths["memory"]; p != "" {
		return p, false
	}
	p := paths[""]
	return p, p != ""
}

// oomKills reads how many processes of the container were killed so far.
func oomKills(paths map[string]string) (uint64, error) {
	path, unified := memoryPath(paths)
	if path == "" {
		return 0, os.ErrNotExist
	}
	name := "memory.oom_control"
	if unified {
		name = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(path, name))
	if err != nil {
		return 0, err
	}
	return parseOOMKills(b)
}

// parseOOMKills finds the line "oom_kill N".
func parseOOMKills(b []byte) (uint64, error) {
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if n, ok := strings.CutPrefix(sc.Text(), "oom_kill "); ok {
			return strconv.ParseUint(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("no oom_kill in %q", b)
}

// watchOOM calls happened when the kernel reports an OOM in the cgroup: on v1
// through an eventfd, on v2 through a priority event on memory.events.
func watchOOM(p *poller, paths map[string]string, happened func()) (*oomWatch, error) {
	path, unified := memoryPath(paths)
	if path == "" {
		return nil, nil
	}
	w := &oomWatch{}
	var events uint32
	if unified {
		fd, err := unix.Open(filepath.Join(path, "memory.events"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot watch memory events: %w", err)
		}
		w.fds, events = []int{fd}, unix.EPOLLPRI
	} else {
		var err error
		if w.fds, err = oomEventfd(path); err != nil {
			return nil, fmt.Errorf("cannot watch for OOM: %w", err)
		}
		events = unix.EPOLLIN
	}
	last, _ := oomKills(paths)
	var err error
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch, err = p.add(w.fds[0], events, func(uint32) {
		if !w.acknowledge(unified) {
			return
		}
		// On v1 the notice comes before the kill, and also when the group goes.
		n, err := oomKills(paths)
		if err != nil {
			return
		}
		if n > last || !unified {
			last = n
			happened()
		}
		p.rearm(w.watch)
	})
	if err != nil {
		w.closeLocked()
		return nil, err
	}
	return w, nil
}

func oomEventfd(path string) ([]int, error) {
	control, err := unix.Open(filepath.Join(path, "memory.oom_control"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(control)
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	line := strconv.Itoa(efd) + " " + strconv.Itoa(control)
	if err := os.WriteFile(filepath.Join(path, "cgroup.event_control"), []byte(line), 0); err != nil {
		unix.Close(efd)
		return nil, err
	}
	return []int{efd}, nil
}

// acknowledge resets the notice; false: stopped.
func (w *oomWatch) acknowledge(unified bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fds) == 0 {
		return false
	}
	var b [512]byte
	if unified {
		_, _ = unix.Pread(w.fds[0], b[:], 0)
	} else {
		_, _ = unix.Read(w.fds[0], b[:8])
	}
	return true
}

// stop ends the watching. Nil and repeated calls are fine.
func (w *oomWatch) stop(p *poller) {
	if w == nil {
		return
	}
	w.once.Do(func() {
		p.remove(w.watch)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closeLocked()
	})
}

func (w *oomWatch) closeLocked() {
	for _, fd := range w.fds {
		unix.Close(fd)
	}
	w.fds = nil
}

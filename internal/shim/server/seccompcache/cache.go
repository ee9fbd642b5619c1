//go:build seccomp

// Package seccompcache builds the program of each seccomp profile once: see
// memo.c for how. The shim gives each process that is to become a container the
// record of an earlier one with the same profile, or an empty file to write its
// own to.
package seccompcache

// #cgo pkg-config: libseccomp
// #cgo LDFLAGS: -Wl,--wrap=seccomp_init -Wl,--wrap=seccomp_arch_add -Wl,--wrap=seccomp_attr_set
// #cgo LDFLAGS: -Wl,--wrap=seccomp_rule_add_array -Wl,--wrap=seccomp_rule_add_exact_array -Wl,--wrap=seccomp_export_bpf
// #cgo CFLAGS: -D_GNU_SOURCE -Wall -Wextra
import "C"

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// mostProfiles bounds what is kept; a node has a handful of profiles.
const mostProfiles = 64

// Cache keeps the records of profiles, each some 100 KiB. The zero value is
// ready. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex
	records map[[sha256.Size]byte]*os.File // sealed
}

// Memo is the file for one process to be started. It must be the first of the
// process's extra files.
type Memo struct {
	File   *os.File
	cache  *Cache
	key    [sha256.Size]byte
	record bool // File is empty, for the process to fill
}

// For returns the memo for a process that gets this profile.
func (c *Cache) For(profile *configs.Seccomp) (*Memo, error) {
	text, err := json.Marshal(profile)
	if err != nil {
		return nil, fmt.Errorf("cannot tell the seccomp profile: %w", err)
	}
	m := &Memo{cache: c, key: sha256.Sum256(text)}
	c.mu.Lock()
	m.File = c.records[m.key]
	c.mu.Unlock()
	if m.File != nil {
		return m, nil
	}
	fd, err := unix.MemfdCreate("berth-seccomp", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file for a seccomp program: %w", err)
	}
	m.File, m.record = os.NewFile(uintptr(fd), "berth-seccomp"), true //nolint:gosec // a descriptor fits
	return m, nil
}

// Done says that the process has been started, or could not be. What it wrote
// is kept for the next.
func (m *Memo) Done(started bool) {
	if !m.record {
		return
	}
	if !started || !m.keep() {
		m.File.Close()
	}
}

func (m *Memo) keep() bool {
	info, err := m.File.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(m.File.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return false
	}
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	if m.cache.records[m.key] != nil || len(m.cache.records) >= mostProfiles {
		return false
	}
	if m.cache.records == nil {
		m.cache.records = make(map[[sha256.Size]byte]*os.File)
	}
	m.cache.records[m.key] = m.File
	return true
}

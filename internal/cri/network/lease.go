package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Lease is what a pod was given. That all of it exists is not in here: the alias
// of the link says so, which the kernel forgets together with the link.
type Lease struct {
	ID        string        `json:"id"`
	Name      string        `json:"name,omitempty"`  // as people know the pod
	NetNS     string        `json:"netns"`           // path the namespace was handed over as
	Namespace uint64        `json:"namespace"`       // its inode, so that another one under the same path is noticed
	Link      string        `json:"link"`            // the pod's port of the bridge
	IPs       []netip.Addr  `json:"ips"`             // IPv4 first
	Ports     []PortMapping `json:"ports,omitempty"` // host ports that lead to the pod
	Boot      string        `json:"boot"`            // boot id of the kernel it was made in

	releasing bool // torn down; link and ports may still be there
}

// pod says in words whose lease it is.
func (l Lease) pod() string { return "pod " + cmp.Or(l.Name, l.ID) }

const (
	leaseSuffix = ".json"
	goneSuffix  = ".gone"   // instead of leaseSuffix once the pod was torn down
	lastFile    = "last"    // addresses given out last, one a line
	forwardFile = "forward" // there if we turned ip_forward on
)

// leaseStore keeps one file a lease. It is safe for concurrent use on different
// ids; calls for one id must not overlap.
type leaseStore struct {
	dir  string
	boot string
	log  *slog.Logger

	lastMu sync.Mutex // held while the file is written: a few microseconds
	last   *os.File
}

func openLeases(stateDir string, log *slog.Logger) (*leaseStore, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("cannot read the kernel's boot id: %w", err)
	}
	s := &leaseStore{dir: stateDir, boot: strings.TrimSpace(string(boot)), log: log}
	if err := os.MkdirAll(s.leaseDir(), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder for network leases: %w", err)
	}
	s.last, err = os.OpenFile(filepath.Join(s.dir, lastFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the network's state: %w", err)
	}
	return s, nil
}

func (s *leaseStore) leaseDir() string { return filepath.Join(s.dir, "leases") }

// path is by hash, for an id may be any text.
func (s *leaseStore) path(id, suffix string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(s.leaseDir(), hex.EncodeToString(sum[:16])+suffix)
}

// load reads all leases of this boot and removes files that say nothing: those
// of an earlier boot, torn ones, and left-over temporary files.
func (s *leaseStore) load() ([]Lease, error) {
	entries, err := os.ReadDir(s.leaseDir())
	if err != nil {
		return nil, fmt.Errorf("cannot read network leases: %w", err)
	}
	var leases []Lease
	var earlier int
	for _, e := range entries {
		file := filepath.Join(s.leaseDir(), e.Name())
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read network lease: %w", err)
		}
		var l Lease
		err = json.Unmarshal(b, &l)
		l.releasing = strings.HasSuffix(file, goneSuffix)
		switch {
		case !l.releasing && !strings.HasSuffix(file, leaseSuffix):
			// a replacement that was cut off before its rename
		case len(b) == 0:
			// a new one that was cut off before its write
		case err != nil || file != s.path(l.ID, filepath.Ext(file)) || len(l.IPs) == 0 || l.Link == "":
			s.log.Warn("network lease is unreadable, dropping it", "file", file, "err", err)
		case l.Boot != s.boot:
			earlier++
		default:
			leases = append(leases, l)
			continue
		}
		if err := os.Remove(file); err != nil {
			return nil, fmt.Errorf("cannot remove outdated network lease: %w", err)
		}
	}
	if earlier > 0 {
		s.log.Info("dropped network leases of an earlier boot", "count", earlier)
	}
	return leases, nil
}

// create writes a lease that was not there before. Nothing is in the kernel yet,
// so a file that is cut off by a kill says rightly that there is nothing.
func (s *leaseStore) create(l Lease) error { return s.write(l, s.path(l.ID, leaseSuffix)) }

// replace changes a lease, to all of the new or none of it.
func (s *leaseStore) replace(l Lease) error {
	path := s.path(l.ID, leaseSuffix)
	if err := s.write(l, path+".new"); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("cannot replace network lease of %s: %w", l.ID, err)
	}
	return nil
}

func (s *leaseStore) write(l Lease, path string) error {
	l.Boot = s.boot
	b, err := json.Marshal(l)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write network lease of %s: %w", l.ID, err)
	}
	return nil
}

// markGone notes that the pod was torn down. A lease that never got to the disk
// is no error.
func (s *leaseStore) markGone(id string) error {
	if err := os.Rename(s.path(id, leaseSuffix), s.path(id, goneSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot mark network lease of %s as gone: %w", id, err)
	}
	return nil
}

// forget removes a lease that was marked as gone.
func (s *leaseStore) forget(id string) error {
	if err := os.Remove(s.path(id, goneSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove network lease of %s: %w", id, err)
	}
	return nil
}

// rememberLast keeps the addresses given out last. It is a hint: a lost or older
// value only lets an address be used again sooner.
func (s *leaseStore) rememberLast(ips []netip.Addr) {
	var b strings.Builder
	for _, ip := range ips {
		b.WriteString(ip.String())
		b.WriteByte('\n')
	}
	s.lastMu.Lock()
	defer s.lastMu.Unlock()
	text := fmt.Sprintf("%-96s\n", b.String())
	if _, err := s.last.WriteAt([]byte(text), 0); err != nil {
		s.log.Warn("cannot remember the last address given out", "err", err)
	}
}

func (s *leaseStore) readLast() (v4, v6 netip.Addr) {
	b := make([]byte, 256)
	n, _ := s.last.ReadAt(b, 0) // an empty or short file is no hint
	for _, f := range strings.Fields(string(b[:n])) {
		if a, err := netip.ParseAddr(f); err == nil && a.Is4() {
			v4 = a
		} else if err == nil {
			v6 = a
		}
	}
	return v4, v6
}

// rememberForward notes that forwarding was off before we turned it on.
func (s *leaseStore) rememberForward(sysctl string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, forwardFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(sysctl + "\n")
	return errors.Join(err, f.Close())
}

// forwards lists what rememberForward noted.
func (s *leaseStore) forwards() []string {
	b, err := os.ReadFile(filepath.Join(s.dir, forwardFile))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// destroy removes every file of the store; its folder only if nothing else is
// in it.
func (s *leaseStore) destroy() error {
	err := errors.Join(
		os.RemoveAll(s.leaseDir()),
		os.RemoveAll(filepath.Join(s.dir, lastFile)),
		os.RemoveAll(filepath.Join(s.dir, forwardFile)),
	)
	_ = os.Remove(s.dir) // fails if others keep files here, which is fine
	return err
}

func (s *leaseStore) close() error { return s.last.Close() }

// Package leak counts what a node holds of the machine — mounts, links, firewall
// rules, cgroups, files, FIFOs, descriptors, processes — so that a test can
// compare before and after. It must not be used outside tests.
//
// Names that differ from run to run (ids of containers, uids of pods, inode
// numbers) are replaced by placeholders and things of one name are counted, so
// that "one more than before" is told whatever its name.
package leak

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
)

// Scope says what belongs to the node under test. Mounts, links, firewall rules
// and zombies are those of this process's namespaces, so that a test whose
// machine is shared with others wants namespaces of its own.
type Scope struct {
	Dirs    []string // all files below are counted
	Cgroup  string   // path of a cgroup below each hierarchy; all groups below are counted
	Procs   []int    // processes whose descriptors are counted; 0 is this one
	Without []string // what contains one of these is not counted
}

// Snapshot is what was there at one time: things, and how many of each.
type Snapshot map[string]int

// patience is how long after an end things may take to go: the kernel frees
// namespaces and links in the background.
const patience = 20 * time.Second

// Check compares what is there now with what is there when the test ends, after
// the cleanups that the test registers later than this.
func Check(t testing.TB, s Scope) {
	t.Helper()
	before := Take(t, s)
	t.Cleanup(func() { before.NoMore(t, s) })
}

// NoMore fails the test if things came to stay.
func (s Snapshot) NoMore(t testing.TB, scope Scope) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		more := Take(t, scope).Since(s)
		if len(more) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind:\n  %s", strings.Join(more, "\n  "))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Since tells what there is more of than before, sorted.
func (s Snapshot) Since(before Snapshot) []string {
	var more []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if n := s[name] - before[name]; n > 0 {
			more = append(more, fmt.Sprintf("%d × %s", n, name))
		}
	}
	return more
}

// Take counts what is there.
func Take(t testing.TB, s Scope) Snapshot {
	t.Helper()
	var errs []error
	snap := make(Snapshot)
	for _, read := range []func(Scope) ([]string, error){mounts, links, rules, groups, files, descriptors, zombies} {
		found, err := read(s)
		errs = append(errs, err)
		for _, name := range found {
			if !slices.ContainsFunc(s.Without, func(w string) bool { return strings.Contains(name, w) }) {
				snap[Plain(name)]++
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("cannot count what the node holds: %v", err)
	}
	return snap
}

// Named finds what bears one of the names: what a pod left behind that is gone.
func Named(t testing.TB, s Scope, names ...string) []string {
	t.Helper()
	var found []string
	for _, read := range []func(Scope) ([]string, error){mounts, links, groups, files} {
		all, err := read(s)
		if err != nil {
			t.Fatalf("cannot look for what was left: %v", err)
		}
		for _, thing := range all {
			if slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.Contains(thing, n) }) {
				found = append(found, thing)
			}
		}
	}
	return found
}

var (
	hexID  = regexp.MustCompile(`[0-9a-f]{64}`)
	uid    = regexp.MustCompile(`[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}`)
	inode  = regexp.MustCompile(`:\[\d+\]`)
	number = regexp.MustCompile(`/\d+\b`)
)

// Plain replaces what differs from run to run in a name.
func Plain(name string) string {
	name = uid.ReplaceAllString(hexID.ReplaceAllString(name, "ID"), "UID")
	return number.ReplaceAllString(inode.ReplaceAllString(name, ""), "/N")
}

func mounts(Scope) ([]string, error) {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range all {
		names = append(names, "mount of "+m.FSType+" at "+m.Mountpoint)
	}
	return names, nil
}

func links(Scope) ([]string, error) {
	all, err := netlink.LinkList()
	for errors.Is(err, netlink.ErrDumpInterrupted) { // links came or went meanwhile
		all, err = netlink.LinkList()
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range all {
		name := l.Attrs().Name
		if alias := l.Attrs().Alias; alias != "" {
			name = "of " + alias // ports of pods have a name made of their address
		}
		names = append(names, "link "+name)
	}
	return names, nil
}

// rules are the firewall's rules and the elements of its sets.
func rules(Scope) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, chain := range chains {
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			continue // it went in the meantime
		}
		for range rules {
			names = append(names, "firewall rule in "+chain.Table.Name+" "+chain.Name)
		}
	}
	tables, err := c.ListTables()
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		sets, err := c.GetSets(table)
		if err != nil {
			continue
		}
		for _, set := range sets {
			elements, err := c.GetSetElements(set)
			if err != nil {
				continue
			}
			for range elements {
				names = append(names, "firewall element in "+table.Name+" "+set.Name)
			}
		}
	}
	return names, nil
}

func groups(s Scope) ([]string, error) {
	if s.Cgroup == "" {
		return nil, nil
	}
	var names []string
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + s.Cgroup)
	if err != nil {
		return nil, err
	}
	for _, root := range append(roots, "/sys/fs/cgroup"+s.Cgroup) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				names = append(names, "cgroup "+path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

func files(s Scope) ([]string, error) {
	var names []string
	for _, dir := range s.Dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			}
			kind := "file"
			switch {
			case d.IsDir():
				kind = "folder"
			case d.Type()&fs.ModeNamedPipe != 0:
				kind = "FIFO"
			case d.Type()&fs.ModeSocket != 0:
				kind = "socket"
			}
			names = append(names, kind+" "+path)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

func descriptors(s Scope) ([]string, error) {
	var names []string
	for _, pid := range s.Procs {
		who, of := strconv.Itoa(pid), ""
		if pid == 0 {
			who, of = "self", "this process"
		} else if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
			of = strings.TrimSpace(string(comm))
		}
		entries, err := os.ReadDir("/proc/" + who + "/fd")
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			to, err := os.Readlink("/proc/" + who + "/fd/" + e.Name())
			if err != nil {
				continue // it was that of ReadDir
			}
			names = append(names, "descriptor of "+of+" on "+strings.TrimSuffix(to, " (deleted)"))
		}
	}
	return names, nil
}

// zombies are processes that have ended and whose parent has not asked how.
func zombies(Scope) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state …; the name may contain anything.
		open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
		if open > 0 && end > open && strings.HasPrefix(string(stat[end:]), ") Z") {
			names = append(names, "zombie "+string(stat[open+1:end]))
		}
	}
	return names, nil
}

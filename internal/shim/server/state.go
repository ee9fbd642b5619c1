package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// phase is where a container is in its life, finer than the protocol's states
// so that a new shim knows what its predecessor was doing.
type phase string

const (
	// creating: nothing may run of it; a new shim removes what there is.
	creating phase = "creating"
	created  phase = "created"
	// starting: Start was asked for; a new shim completes it.
	starting phase = "starting"
	running  phase = "running"
	exited   phase = "exited"
	// deleting: a new shim completes the deletion.
	deleting phase = "deleting"
)

const (
	// stateVersion is the newest version of a state that this shim reads; it reads
	// the older ones, too. Version 2 has Program.
	stateVersion = 2
	stateName    = "state.json"
	// stateMax is the size in bytes beyond which a state file can't be ours.
	stateMax = 1 << 20
)

// state is what is on disk of a container. Written before anything it tells of
// can have effects that outlive the shim.
type state struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	BootID  string `json:"bootID"` // of the kernel it ran under; pids mean nothing under another
	Phase   phase  `json:"phase"`
	Bundle  string `json:"bundle"`
	Mounts  int    `json:"mounts,omitempty"` // made on Bundle/rootfs
	// Program runs the container; nil: libcontainer.
	Program *shim.Program `json:"program,omitempty"`

	LogPath     string `json:"logPath,omitempty"`
	LogMaxBytes int64  `json:"logMaxBytes,omitempty"`
	LogMaxFiles int    `json:"logMaxFiles,omitempty"`
	Stdin       bool   `json:"stdin,omitempty"`
	StdinOnce   bool   `json:"stdinOnce,omitempty"`
	TTY         bool   `json:"tty,omitempty"`

	// CgroupPaths are absolute, by controller; on cgroup v2 the only key is "".
	CgroupPaths map[string]string `json:"cgroupPaths,omitempty"`
	PrivatePIDs bool              `json:"privatePIDs,omitempty"` // its processes end with the first one

	PID         int    `json:"pid,omitempty"`
	Ticks       uint64 `json:"ticks,omitempty"` // start time of PID, see pidStat
	HolderPID   int    `json:"holderPID,omitempty"`
	HolderTicks uint64 `json:"holderTicks,omitempty"`

	CreatedAt time.Time  `json:"createdAt"`
	StartedAt time.Time  `json:"startedAt,omitzero"`
	Exit      *exitState `json:"exit,omitempty"` // set in phases exited and, maybe, deleting
}

// exitState is shim.Exit on disk.
type exitState struct {
	Code      int32     `json:"code"`
	Signal    int32     `json:"signal,omitempty"`
	At        time.Time `json:"at"`
	OOMKilled bool      `json:"oomKilled,omitempty"`
	Known     bool      `json:"known"`
}

// decodeState parses a state file of container id and checks everything that
// the shim later acts on: a file that is not exactly ours must not make it kill
// processes or remove folders it does not own.
func decodeState(id string, b []byte) (state, error) {
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return state{}, err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if st.Version < 1 || st.Version > stateVersion {
		bad("version is %d, want 1 to %d", st.Version, stateVersion)
	}
	if st.Program != nil && (st.Version < 2 || !cleanAbs(st.Program.Path)) {
		bad("program is %q in version %d, want an absolute path in version 2", st.Program.Path, st.Version)
	}
	if st.ID != id || validID(id) != nil {
		bad("id is %q, the folder's is %q", st.ID, id)
	}
	switch st.Phase {
	case creating, deleting:
	case created, starting, running, exited:
		if st.PID <= 1 {
			bad("pid is %d in phase %s", st.PID, st.Phase)
		}
		if len(st.CgroupPaths) == 0 {
			bad("no cgroup in phase %s", st.Phase)
		}
	default:
		bad("phase is %q", st.Phase)
	}
	if st.PID < 0 || st.HolderPID < 0 || st.HolderPID == 1 || st.Mounts < 0 {
		bad("pid %d, holder %d or mounts %d out of range", st.PID, st.HolderPID, st.Mounts)
	}
	if st.Phase == exited && st.Exit == nil {
		bad("exited without an exit")
	}
	if !cleanAbs(st.Bundle) || st.Bundle == "/" {
		bad("bundle is %q, want an absolute path", st.Bundle)
	}
	if st.LogPath != "" && !cleanAbs(st.LogPath) {
		bad("log path is %q, want an absolute path", st.LogPath)
	}
	for controller, path := range st.CgroupPaths {
		if !ownCgroup(path) {
			bad("cgroup path of %q is %q, want one below %s", controller, path, cgroupRoot)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return state{}, err
	}
	return st, nil
}

func cleanAbs(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && !strings.ContainsRune(path, 0)
}

// validID holds for names that are safe as file names and that libcontainer
// accepts.
func validID(id string) error {
	if id == "" || len(id) > 200 || id == "." || id == ".." {
		return fmt.Errorf("container id %q is empty, too long or a dot", id)
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_+-.", c) >= 0:
		default:
			return fmt.Errorf("container id %q has %q; allowed are letters, digits, dots and _ + -", id, c)
		}
	}
	return nil
}

// loadState reads the state file in dir.
func loadState(dir string) (state, error) {
	f, err := os.Open(filepath.Join(dir, stateName))
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return state{}, err
	}
	if fi.Size() > stateMax {
		return state{}, fmt.Errorf("state file has %d bytes, want at most %d", fi.Size(), stateMax)
	}
	b := make([]byte, fi.Size())
	if _, err := f.ReadAt(b, 0); err != nil && fi.Size() > 0 {
		return state{}, err
	}
	return decodeState(filepath.Base(dir), b)
}

// saveState replaces the state file in dir. Readers see the old or the new one,
// whenever the shim is killed. There is no fsync: after a crash of the machine
// no process is left for the state to tell of.
func saveState(dir string, st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("cannot encode state of container %q: %w", st.ID, err)
	}
	path := filepath.Join(dir, stateName)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return fmt.Errorf("cannot save state of container %q: %w", st.ID, err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("cannot save state of container %q: %w", st.ID, err)
	}
	return nil
}

// bootID names this boot of the kernel.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

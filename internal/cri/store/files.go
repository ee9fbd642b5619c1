package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	suffix   = ".json"
	bootFile = "boot_id"
	// kernelBootID changes with each boot of the machine.
	kernelBootID = "/proc/sys/kernel/random/boot_id"
)

// Store is a folder with one file for each object. Files of different objects
// may be written at once; the caller orders writes of one object.
type Store struct {
	dir string
}

// Open makes the folder if it is missing. rebooted says that what it held was
// written before the last boot and has been dropped.
func Open(dir string) (s *Store, rebooted bool, err error) {
	return open(dir, kernelBootID)
}

func open(dir, bootIDFile string) (*Store, bool, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return nil, false, fmt.Errorf("cannot tell this boot of the machine from others: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("cannot make state folder: %w", err)
	}
	s := &Store{dir: dir}
	was, err := os.ReadFile(filepath.Join(dir, bootFile))
	if err == nil && string(was) == string(boot) {
		return s, false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("cannot read state folder: %w", err)
	}
	rebooted := err == nil
	for _, kind := range []string{sandboxes, containers} {
		if err := os.RemoveAll(filepath.Join(dir, kind)); err != nil {
			return nil, false, fmt.Errorf("cannot drop state of an earlier boot: %w", err)
		}
	}
	return s, rebooted, write(filepath.Join(dir, bootFile), boot)
}

const (
	sandboxes  = "sandboxes"
	containers = "containers"
)

// PutSandbox writes a sandbox's state.
func (s *Store) PutSandbox(v Sandbox) error { return put(s.path(sandboxes, v.ID), v) }

// PutContainer writes a container's state.
func (s *Store) PutContainer(v Container) error { return put(s.path(containers, v.ID), v) }

// DeleteSandbox forgets a sandbox. It is no error if it is not there.
func (s *Store) DeleteSandbox(id string) error { return remove(s.path(sandboxes, id)) }

// DeleteContainer forgets a container. It is no error if it is not there.
func (s *Store) DeleteContainer(id string) error { return remove(s.path(containers, id)) }

// Loaded is what Load found.
type Loaded struct {
	Sandboxes  []Sandbox
	Containers []Container
	// Broken lists objects whose file could not be read, by id. Their files
	// stay until the caller deletes them.
	BrokenSandboxes, BrokenContainers map[string]error
}

// Load reads everything.
func (s *Store) Load() (Loaded, error) {
	var l Loaded
	var errs [2]error
	l.Sandboxes, l.BrokenSandboxes, errs[0] = load[Sandbox](filepath.Join(s.dir, sandboxes))
	l.Containers, l.BrokenContainers, errs[1] = load[Container](filepath.Join(s.dir, containers))
	return l, errors.Join(errs[:]...)
}

func (s *Store) path(kind, id string) string { return filepath.Join(s.dir, kind, id+suffix) }

func load[T interface{ whole(id string) bool }](dir string) (list []T, broken map[string]error, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read state folder: %w", err)
	}
	broken = make(map[string]error)
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok { // left by a write that was cut short
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, nil, fmt.Errorf("cannot remove unfinished state file: %w", err)
			}
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		var v T
		if err == nil {
			err = json.Unmarshal(raw, &v)
		}
		if err == nil && !v.whole(id) {
			err = errors.New("it has no configuration, or another id")
		}
		if err != nil {
			broken[id] = err
			continue
		}
		list = append(list, v)
	}
	return list, broken, nil
}

func put(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode state %s: %w", filepath.Base(path), err)
	}
	return write(path, raw)
}

// write replaces a file. It does not sync: what it describes ends with the
// machine, and a rename is ordered for every reader of the same kernel.
func write(path string, raw []byte) error {
	tmp := strings.TrimSuffix(path, suffix) + ".tmp"
	err := os.WriteFile(tmp, raw, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(tmp, raw, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return fmt.Errorf("cannot write state: %w", err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove state: %w", err)
	}
	return nil
}

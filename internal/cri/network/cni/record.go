package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// record is what a sandbox is connected with: all that its plugins were told when
// they connected it. It never changes.
type record struct {
	ID           string          `json:"id"`
	Name         string          `json:"name,omitempty"` // as people know the pod
	NetNS        string          `json:"netns"`
	File         string          `json:"file"`   // that the configuration was read from
	Config       json.RawMessage `json:"config"` // a list, whole in itself
	Dirs         []string        `json:"dirs"`   // where the plugins were
	Arguments    [][2]string     `json:"arguments,omitempty"`
	Capabilities map[string]any  `json:"capabilities,omitempty"`
}

const (
	recordSuffix = ".json"
	newSuffix    = ".new" // of a record in the making: no plugin has run
)

// heldWait is how long others who work on a sandbox are waited for: plugins of a
// berth that was killed. What holds a record for longer is a process that a plugin
// has left behind on purpose.
const heldWait = 20 * time.Second

// records keeps a file a sandbox. Who works on one holds a lock on its file, which
// the plugins inherit. It is safe for concurrent use.
type records struct {
	dir  string
	wait time.Duration // how long others are waited for
	log  *slog.Logger
}

func (s records) path(id string) string { return filepath.Join(s.dir, id+recordSuffix) }

// create writes the record of a sandbox that has none, and holds it. The caller
// must close what it gets.
func (s records) create(r record) (held *os.File, err error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	path := s.path(r.ID)
	if _, err := os.Lstat(path); err == nil {
		return nil, errors.New("it has a network already")
	}
	held, err = os.OpenFile(path+newSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = held.Write(raw)
	if err == nil {
		err = unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// take waits until nobody works on a sandbox, reads its record and holds it. The
// caller must close what it gets. fs.ErrNotExist: there is none.
func (s records) take(ctx context.Context, id string) (r record, held *os.File, err error) {
	if held, err = os.OpenFile(s.path(id), os.O_RDWR, 0); err != nil {
		return r, nil, err
	}
	if err := s.hold(ctx, held, id); err != nil {
		return r, nil, errors.Join(err, held.Close())
	}
	raw, err := os.ReadFile(s.path(id)) // not from held: it may be gone by now
	if err == nil {
		if err = json.Unmarshal(raw, &r); err == nil && r.ID != id {
			err = fmt.Errorf("it is that of %q", r.ID)
		}
		if err != nil {
			err = fmt.Errorf("the record %s is damaged (%w): take down by hand what plugins made for the sandbox, then remove the file", s.path(id), err)
		}
	}
	if err != nil {
		return r, nil, errors.Join(err, held.Close())
	}
	return r, held, nil
}

// hold locks a record, or goes on without the lock after a while.
func (s records) hold(ctx context.Context, f *os.File, id string) error {
	deadline := time.Now().Add(s.wait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(deadline) {
			s.log.Warn("something that a CNI plugin started still runs, the sandbox is torn down all the same", "id", id)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("plugins still work on it: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s records) remove(id string) error {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list tells which sandboxes have a record.
func (s records) list() (ids []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot look for sandboxes with a CNI network: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), recordSuffix); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// sweep removes what was cut off before a plugin ran. Nobody may be creating.
func (s records) sweep() error {
	left, err := filepath.Glob(filepath.Join(s.dir, "*"+newSuffix))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

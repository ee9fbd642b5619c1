package podlogs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// retryFolder is how often a folder is looked for that is not there yet.
const retryFolder = 100 * time.Millisecond

// Entry is a line of one of the containers that are followed.
type Entry struct {
	Key     string // as given to Add
	Attempt int
	Line
}

// Follower reads the logs of many containers as they grow, with one inotify
// instance and one goroutine: that of Run. Its other methods are safe for
// concurrent use.
type Follower struct {
	watcher *fsnotify.Watcher
	entry   func(Entry) error
	idle    func() error

	mu       sync.Mutex
	wake     chan struct{}
	added    []*source
	finished map[string]bool // to be read to the end, then dropped
	closing  bool            // Run returns when nothing is left

	// Only Run's goroutine touches what follows.
	sources map[string]*source // by key
	folders map[string]*source // by folder
	dirty   []*source          // in the order in which they became so
}

type source struct {
	cursor
	key     string
	watched bool
	dirty   bool
	end     bool
}

// NewFollower returns a Follower that calls entry with each line, and idle when
// there is nothing more to read for now. An error of theirs ends Run.
func NewFollower(entry func(Entry) error, idle func() error) (*Follower, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch log files: %w", err)
	}
	return &Follower{
		watcher: w, entry: entry, idle: idle, wake: make(chan struct{}, 1),
		finished: make(map[string]bool), sources: make(map[string]*source), folders: make(map[string]*source),
	}, nil
}

// Add follows the container whose log files are, or will be, in dir. A key or
// folder that is followed already is not followed twice.
func (f *Follower) Add(key, dir string, start Start) {
	s := &source{key: key, cursor: cursor{dir: filepath.Clean(dir), start: start}}
	s.emit = func(attempt int, l Line) error { return f.entry(Entry{Key: key, Attempt: attempt, Line: l}) }
	f.mu.Lock()
	f.added = append(f.added, s)
	f.mu.Unlock()
	f.poke()
}

// Finish says that a container writes no more: what is there is read, then it is
// forgotten.
func (f *Follower) Finish(key string) {
	f.mu.Lock()
	f.finished[key] = true
	f.mu.Unlock()
	f.poke()
}

// Close lets Run return when all containers are finished and read. Nothing may
// be added afterwards.
func (f *Follower) Close() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.poke()
}

func (f *Follower) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run reads until ctx ends, or Close was called and all is read.
func (f *Follower) Run(ctx context.Context) error {
	defer f.watcher.Close()
	defer func() {
		for _, s := range f.sources {
			s.close()
		}
	}()
	for {
		f.take()
		if len(f.dirty) > 0 {
			if err := f.turn(); err != nil {
				return err
			}
			// Others may have something to read as well by now.
			if err := f.hear(ctx, closed); err != nil {
				return err
			}
			continue
		}
		f.dirty = nil
		if err := f.idle(); err != nil {
			return err
		}
		if f.done() {
			return nil
		}
		if err := f.hear(ctx, f.retry()); err != nil {
			return err
		}
	}
}

// closed is a channel that does not keep anybody waiting.
var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// retry is when to look for folders that are not there yet; nil: never.
func (f *Follower) retry() <-chan time.Time {
	for _, s := range f.sources {
		if !s.watched {
			return time.After(retryFolder)
		}
	}
	return nil
}

// hear waits for something to happen, or for the time limit. All that has
// happened already is heeded before.
func (f *Follower) hear(ctx context.Context, limit <-chan time.Time) error {
	for heard := false; ; heard = true {
		if heard {
			limit = closed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-f.watcher.Events:
			if ok {
				f.changed(e)
			}
			continue
		case err := <-f.watcher.Errors:
			// Events were lost: look at all.
			if !errors.Is(err, fsnotify.ErrEventOverflow) && err != nil {
				return fmt.Errorf("cannot watch log files: %w", err)
			}
			f.markAll()
			continue
		case <-f.wake:
			return nil
		case <-limit:
		}
		if limit != closed {
			f.markAll()
		}
		return nil
	}
}

// take heeds what other goroutines asked for.
func (f *Follower) take() {
	f.mu.Lock()
	added, finished := f.added, f.finished
	f.added, f.finished = nil, make(map[string]bool)
	f.mu.Unlock()
	for _, s := range added {
		if f.sources[s.key] != nil || f.folders[s.dir] != nil {
			continue
		}
		f.sources[s.key], f.folders[s.dir] = s, s
		f.mark(s)
	}
	for key := range finished {
		if s := f.sources[key]; s != nil {
			s.end = true
			f.mark(s)
		}
	}
}

func (f *Follower) mark(s *source) {
	if !s.dirty {
		s.dirty = true
		f.dirty = append(f.dirty, s)
	}
}

func (f *Follower) markAll() {
	for _, s := range f.sources {
		f.mark(s)
	}
}

func (f *Follower) changed(e fsnotify.Event) {
	if s := f.folders[filepath.Dir(e.Name)]; s != nil && !e.Has(fsnotify.Remove) {
		f.mark(s)
	}
}

// turn reads on for a while in the container whose turn it is.
func (f *Follower) turn() error {
	s := f.dirty[0]
	f.dirty = f.dirty[1:]
	s.dirty = false
	if !s.watched {
		// Watched before it is read, so that nothing falls in between.
		s.watched = f.watcher.Add(s.dir) == nil
	}
	more, err := s.turn()
	switch {
	case err != nil:
		return err
	case more:
		f.mark(s)
	case s.end:
		f.drop(s)
	}
	return nil
}

// done says that Run is to return.
func (f *Follower) done() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closing && len(f.sources) == 0 && len(f.added) == 0
}

func (f *Follower) drop(s *source) {
	s.close()
	delete(f.sources, s.key)
	delete(f.folders, s.dir)
	// The folder may be gone, and its watch with it.
	_ = f.watcher.Remove(s.dir)
}

package db

import (
	"bytes"
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

	"go.etcd.io/bbolt"
)

func openTest(t *testing.T, path string) *DB {
	t.Helper()
	d, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestValuesOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "berth.db")
	d := openTest(t, path)
	d.Put("pods", "a", []byte("1"))
	d.Put("pods", "b", []byte("2"))
	if err := d.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Put("pods", "a", []byte("3"))
	d.Delete("pods", "b")
	d.Put("pods", "c", nil)
	check := func() {
		t.Helper()
		all, err := d.All("pods")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%q", all); got != `map["a":"3" "c":""]` {
			t.Errorf("holds %s", got)
		}
		if v, err := d.Get("pods", "b"); err != nil || v != nil {
			t.Errorf("deleted value is %q, %v", v, err)
		}
	}
	check() // from memory
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openTest(t, path)
	defer d.Close()
	check() // from disk
}

func TestRunWritesWhatNobodyWaitsFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	d := openTest(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	d.Put("pods", "a", []byte("1"))
	for {
		d.mu.Lock()
		done := d.durable == d.queued
		d.mu.Unlock()
		if done {
			break
		}
		time.Sleep(time.Millisecond)
	}
	d.Put("pods", "b", []byte("2"))
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if d.durable != d.queued {
		t.Error("Run left values behind")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A hundred writers that all want durability share transactions.
func TestWritersShareTransactions(t *testing.T) {
	d := openTest(t, filepath.Join(t.TempDir(), "berth.db"))
	defer d.Close()
	var commits int
	var mu sync.Mutex
	d.cfg.refuse = func() error {
		mu.Lock()
		commits++
		mu.Unlock()
		return nil
	}
	gate := make(chan struct{})
	d.commit <- struct{}{} // a transaction is under way
	var writers sync.WaitGroup
	for i := range 100 {
		writers.Go(func() {
			d.Put("pods", fmt.Sprint(i), []byte("x"))
			gate <- struct{}{}
			if err := d.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for range 100 {
		<-gate
	}
	<-d.commit
	writers.Wait()
	if commits != 1 {
		t.Errorf("100 writers took %d transactions, want 1", commits)
	}
	all, err := d.All("pods")
	if err != nil || len(all) != 100 {
		t.Errorf("%d values, %v", len(all), err)
	}
}

func TestRefusedWritesStayPending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	d := openTest(t, path)
	full := true
	d.cfg.refuse = func() error {
		if full {
			return syscall.ENOSPC
		}
		return nil
	}
	d.Put("pods", "a", []byte("old"))
	if err := d.Sync(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	if d.Failed() == nil {
		t.Error("the failure is not told")
	}
	d.Put("pods", "a", []byte("new"))
	full = false
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openTest(t, path)
	defer d.Close()
	if v, err := d.Get("pods", "a"); err != nil || string(v) != "new" {
		t.Errorf("found %q, %v", v, err)
	}
}

// A real full disk: writes fail, nothing is lost or torn, and all is well again
// once there is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("berth-db-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	path := filepath.Join(dir, "berth.db")
	d := openTest(t, path)
	d.Put("pods", "first", []byte("kept"))
	if err := d.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	d.Put("pods", "second", make([]byte, 300<<10))
	if err := d.Sync(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("writing to a full disk: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openTest(t, path)
	defer d.Close()
	all, err := d.All("pods")
	if err != nil || len(all) != 2 || string(all["first"]) != "kept" {
		t.Errorf("found %d values, %v", len(all), err)
	}
}

func TestSecondOpenSaysWhoHasIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	d := openTest(t, path)
	defer d.Close()
	_, err := Open(Config{Path: path})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
}

func TestNewerFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	d := openTest(t, path)
	if err := d.bolt.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(metaBucket)).Put([]byte(versionKey), []byte("2"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: path}); !errors.Is(err, ErrNewer) {
		t.Errorf("got %v", err)
	}
}

// A damaged file is refused and left as it is, unless it is to be put aside: it is
// then kept beside, and work goes on.
func TestDamagedFile(t *testing.T) {
	overwrite := func(from int64, with []byte) func(path string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(with, from)
			return errors.Join(err, f.Close())
		}
	}
	page := int64(os.Getpagesize())
	for name, damage := range map[string]func(path string) error{
		"garbage":   func(path string) error { return os.WriteFile(path, make([]byte, 64<<10), 0o600) },
		"text":      func(path string) error { return os.WriteFile(path, []byte("hello"), 0o600) },
		"cut off":   func(path string) error { return os.Truncate(path, 16<<10) },
		"emptied":   func(path string) error { return os.Truncate(path, 0) },
		"pages":     overwrite(2*page, bytes.Repeat([]byte{0xa5}, int(page)*60)),
		"no pages":  overwrite(2*page, make([]byte, page*60)),
		"last page": overwrite(28*page, bytes.Repeat([]byte{0xff}, int(page)*8)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "berth.db")
			d := openTest(t, path)
			d.Put("pods", "a", make([]byte, 100<<10))
			for i := range 100 {
				d.Put("events", fmt.Sprint(i), make([]byte, 1000))
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(Config{Path: path}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Fatalf("open says: %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file has changed: %v", err)
			}
			d, err = Open(Config{Path: path, Aside: path + ".broken-"})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			// There is nothing to keep of an empty one.
			if kept, _ := filepath.Glob(path + ".broken-*"); len(kept) != min(len(before), 1) {
				t.Errorf("put aside are %v", kept)
			}
			d.Put("pods", "a", []byte("x"))
			if err := d.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkHundredStarts is what a hundred pods pay that begin at once: each
// records one value of the size of a history and waits for the disk.
func BenchmarkHundredStarts(b *testing.B) {
	d, err := Open(Config{Path: filepath.Join(b.TempDir(), "berth.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for b.Loop() {
		var pods sync.WaitGroup
		for i := range 100 {
			pods.Go(func() {
				d.Put("pods", fmt.Sprint(i), make([]byte, 4<<10))
				if err := d.Sync(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		pods.Wait()
	}
}

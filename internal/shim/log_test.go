package shim_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

func TestLogHoldsExactlyWhatWasWritten(t *testing.T) {
	n := newNode(t)
	long := strings.Repeat("y", 16<<10)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"lines":             {[]string{"raw", `a\nb\n`}, []string{"stdout F a", "stdout F b"}},
		"empty-lines":       {[]string{"raw", `\n\na\n`}, []string{"stdout F ", "stdout F ", "stdout F a"}},
		"no-newline":        {[]string{"raw", `a`, `b`}, []string{"stdout F ab"}},
		"bytes":             {[]string{"raw", `\x00\xff\r\n`}, []string{"stdout F \x00\xff\r"}},
		"exactly-the-limit": {[]string{"repeat", "y", "16384"}, []string{"stdout F " + long}},
		"one-more":          {[]string{"repeat", "y", "16385"}, []string{"stdout P " + long, "stdout F y"}},
		"three-parts":       {[]string{"repeat", "y", "40000"}, []string{"stdout P " + long, "stdout P " + long, "stdout F " + long[:40000-2*16384]}},
		"nothing":           {[]string{"true"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.bundle(name, nil, tc.args...)
			n.start(r)
			n.wait(name)
			if got := n.entries(r.LogPath); !slices.Equal(got, tc.want) {
				t.Errorf("log %.200q\nwant %.200q", got, tc.want)
			}
		})
	}
	t.Run("both", func(t *testing.T) {
		r := n.bundle("both", nil, "both", "x", "y")
		n.start(r)
		n.wait("both")
		got := n.entries(r.LogPath)
		slices.Sort(got)
		if want := []string{"stderr F y", "stdout F x"}; !slices.Equal(got, want) {
			t.Errorf("log %q, want %q", got, want)
		}
	})
}

func TestLogRotates(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "lines", "3000")
	r.LogMaxBytes, r.LogMaxFiles = 20_000, 3
	n.start(r)
	n.wait("a")
	old, err := filepath.Glob(r.LogPath + ".*")
	if err != nil {
		t.Fatal(err)
	}
	if len(old) != 2 {
		t.Fatalf("rotated files %q, want 2", old)
	}
	slices.Sort(old)
	next := -1
	for _, name := range append(old, r.LogPath) {
		if suffix, ok := strings.CutPrefix(name, r.LogPath+"."); ok {
			if _, err := time.Parse("20060102-150405", suffix); err != nil {
				t.Errorf("name %s: %v", name, err)
			}
		}
		if fi, err := os.Stat(name); err != nil || fi.Size() > r.LogMaxBytes {
			t.Errorf("%s: size %d, %v", name, fi.Size(), err)
		}
		for _, e := range n.entries(name) {
			var i int
			if _, err := fmt.Sscanf(e, "stdout F line %d", &i); err != nil {
				t.Fatalf("entry %q: %v", e, err)
			}
			if next >= 0 && i != next {
				t.Fatalf("line %d follows line %d", i, next-1)
			}
			next = i + 1
		}
	}
	if next != 3000 {
		t.Errorf("last line is %d, want 2999", next-1)
	}
}

func TestReopenLogFollowsThePath(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "lines", "2000", "1")
	n.start(r)
	n.logHas(r.LogPath, "line 10\n")
	if err := os.Rename(r.LogPath, r.LogPath+".old"); err != nil {
		t.Fatal(err)
	}
	if err := n.ReopenLog(n.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	n.wait("a")
	got := append(n.entries(r.LogPath+".old"), n.entries(r.LogPath)...)
	if len(got) != 2000 || got[1999] != "stdout F line 1999" {
		t.Errorf("%d entries, want 2000", len(got))
	}
}

// A full disk costs lines, not the container, and the log says how many.
func TestFullDiskDropsAndSaysSo(t *testing.T) {
	n := newNode(t)
	disk := filepath.Join(n.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 56<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	r := n.bundle("a", nil, "lines", "3000", "1")
	r.LogPath = filepath.Join(disk, "log")
	n.start(r)
	n.until("lines are dropped", func() bool {
		s, err := n.Stats(n.ctx, "a")
		return err == nil && s.LogLinesDropped > 20
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	n.logHas(r.LogPath, "no space left on device\n")
	if err := n.Signal(n.ctx, "a", syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	n.wait("a")
	lost, last := 0, -1
	for _, e := range n.entries(r.LogPath) {
		var i, more int
		if _, err := fmt.Sscanf(e, "stdout F line %d", &i); err == nil {
			if i != last+1+lost {
				t.Fatalf("line %d after line %d, %d said to be lost", i, last, lost)
			}
			last, lost = i, 0
		} else if _, err := fmt.Sscanf(e, "stderr F berth: %d log lines lost", &more); err != nil {
			t.Fatalf("entry %q", e)
		}
		lost += more // there may have been room for one note and not for a line after it
	}
}

// A gigabyte of output goes through a shim that does not grow.
func TestFloodKeepsMemoryFlat(t *testing.T) {
	n := newNode(t)
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	r := n.bundle("a", nil, "flood", fmt.Sprint(size))
	r.LogMaxBytes, r.LogMaxFiles = 10<<20, 3
	pid := n.shimPID()
	n.start(r)
	if e := n.wait("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	var peak int
	for line := range strings.Lines(n.read(fmt.Sprintf("/proc/%d/status", pid))) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak)
	}
	if peak == 0 || peak > 40<<10 {
		t.Errorf("the shim's memory peaked at %d KiB, want at most 40 MiB", peak)
	}
	t.Logf("peak resident memory %d KiB", peak)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestAttachedReaderGetsOutputAndASlowOneBlocksNobody(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "cat")
	r.Stdin, r.StdinOnce = true, true
	n.start(r)
	// One that never reads.
	ctx, cancel := context.WithCancel(n.ctx)
	stuck := make(chan struct{})
	slow := make(chan error, 1)
	go func() {
		slow <- n.Attach(ctx, shim.AttachRequest{ID: "a", Stdout: writerFunc(func(p []byte) (int, error) {
			<-stuck
			return len(p), nil
		})})
	}()
	var out buffer
	input := strings.Repeat(strings.Repeat("z", 99)+"\n", 40_000)
	left := input
	// The end of the input ends the container, which ends the attach.
	// Never more under way than the reader's pipe holds, whatever the machine does
	// meanwhile: a reader that is behind by more loses output.
	paced := readerFunc(func(p []byte) (int, error) {
		for len(input)-len(left) > len(out.String())+256<<10 {
			time.Sleep(time.Millisecond)
		}
		if left == "" {
			return 0, io.EOF
		}
		k := copy(p, left[:min(len(left), 64<<10)])
		left = left[k:]
		return k, nil
	})
	if err := n.Attach(n.ctx, shim.AttachRequest{ID: "a", Stdin: paced, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if got := len(n.entries(r.LogPath)); got != 40_001 {
		t.Errorf("log has %d entries, want 40001", got)
	}
	if got := out.String(); !strings.HasSuffix(got, "z\nend of input\n") || len(got) != len(input)+len("end of input\n") {
		t.Errorf("%d bytes attached, want %d", len(got), len(input))
	}
	close(stuck)
	cancel()
	<-slow
}

package volume

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crashRoot tells the test binary, run again, to work on this root until it is
// killed.
const crashRoot = "BERTH_TEST_CRASH_ROOT"

func crashSources() *sources {
	return &sources{
		configMaps: map[string]map[string]string{"web": {"mode": "fast", "app.conf": "a=1"}},
		secrets:    map[string]map[string]string{"db": {"password": "x"}},
	}
}

// TestUntilKilled is no test: it is what TestKilledAtAnyMoment kills.
func TestUntilKilled(t *testing.T) {
	root := os.Getenv(crashRoot)
	if root == "" {
		t.Skip("run by TestKilledAtAnyMoment")
	}
	s := crashSources()
	m, err := New(Config{Root: root, Sources: s})
	must(t, err)
	pod := podOf(t, everyKind)
	for i := 0; ; i++ {
		v := prepare(t, m, pod)
		_, err := m.SubPath(t.Context(), pod.UID, SubPath{Volume: "scratch", HostPath: v["scratch"].HostPath, Container: "app", Path: "a/b"})
		must(t, err)
		s.configMaps["web"]["mode"] = fmt.Sprint(i)
		must(t, m.Refresh(t.Context(), pod))
		must(t, m.RemovePod(t.Context(), pod.UID))
	}
}

// The agent is killed with SIGKILL in the midst of its work, many times. Each
// time a new one either goes on with the pod, or removes it, and then nothing of
// it is left.
func TestKilledAtAnyMoment(t *testing.T) {
	m := newManager(t, crashSources())
	pod := podOf(t, everyKind)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestUntilKilled$")
		cmd.Env = append(os.Environ(), crashRoot+"="+m.Root)
		must(t, cmd.Start())
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		must(t, cmd.Process.Kill())
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			t.Fatalf("seed %d, round %d: it ended by itself: %v", seed, round, err)
		}
		if round%2 == 0 {
			mounted := prepare(t, m, pod)
			if got := tree(t, mounted["all"].HostPath); len(got) != 2 || got["sub/mode"] != "-rw-r--r-- fast" {
				t.Errorf("seed %d, round %d: the volume holds %v", seed, round, got)
			}
			for _, v := range mounted {
				if n := len(mountsBelow(t, v.HostPath)); n > 1 {
					t.Errorf("seed %d, round %d: %s is mounted %d times", seed, round, v.HostPath, n)
				}
			}
		}
		must(t, m.RemovePod(t.Context(), pod.UID))
		if left := mountsBelow(t, m.Root); len(left) > 0 || m.Exists(pod.UID) {
			t.Fatalf("seed %d, round %d: left %q, folder: %v", seed, round, left, m.Exists(pod.UID))
		}
		if entries, err := os.ReadDir(m.Pods()); err != nil || len(entries) > 0 {
			t.Fatalf("seed %d, round %d: left %v, %v", seed, round, entries, err)
		}
	}
}

// Preparing, refreshing and removing at once come one after the other.
func TestCallsForOnePodAtOnce(t *testing.T) {
	m := newManager(t, crashSources())
	pod := podOf(t, everyKind)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				if _, err := m.Prepare(t.Context(), pod); err != nil {
					t.Error(err)
				}
				if err := m.Refresh(t.Context(), pod); err != nil {
					t.Error(err)
				}
				if err := m.RemovePod(t.Context(), pod.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left := mountsBelow(t, m.Root); len(left) > 0 || m.Exists(pod.UID) || len(m.busy) > 0 {
		t.Errorf("left %q, folder: %v, busy: %v", left, m.Exists(pod.UID), m.busy)
	}
}

// The disk is full while a new version is written: the old one stays whole.
func TestFullDiskKeepsTheOldVersion(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	write(t, dir, files("a", "old", "b", "old"))
	_, err := writePayload(dir, files("a", "new", "b", string(make([]byte, 1<<20))), nil)
	if err == nil {
		t.Fatal("a file larger than the disk was written")
	}
	if got := tree(t, dir); got["a"] != "-rw-r--r-- old" || got["b"] != "-rw-r--r-- old" {
		t.Errorf("the volume holds %v", got)
	}
	if v := versions(t, dir); len(v) != 1 {
		t.Errorf("versions %q: the torn one takes room", v)
	}
	write(t, dir, files("a", "new"))
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("b is still there")
	}
}

package leak

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWhatCameToStayIsTold(t *testing.T) {
	dir := t.TempDir()
	scope := Scope{Dirs: []string{dir}, Procs: []int{0}}
	before := Take(t, scope)

	id := strings.Repeat("ab", 32)
	if err := syscall.Mkfifo(filepath.Join(dir, id), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for !slices.Contains(Take(t, scope).Since(before), "1 × zombie exe") {
		if time.Now().After(deadline) {
			t.Fatal("the zombie is not seen")
		}
	}
	more := Take(t, scope).Since(before)
	for _, want := range []string{"1 × FIFO " + Plain(dir) + "/ID", "1 × file " + Plain(dir) + "/f", "1 × descriptor of this process on " + Plain(dir) + "/f"} {
		if !slices.Contains(more, want) {
			t.Errorf("%q is not told: %q", want, more)
		}
	}
	if found := Named(t, scope, id); !slices.Equal(found, []string{"FIFO " + dir + "/" + id}) {
		t.Errorf("by its name: %q", found)
	}

	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	os.Remove(filepath.Join(dir, id))
	os.Remove(filepath.Join(dir, "f"))
	before.NoMore(t, scope)
}

func TestNamesThatDifferAreCountedTogether(t *testing.T) {
	for in, want := range map[string]string{
		"mount at /run/ns/" + strings.Repeat("0f", 32) + "/net": "mount at /run/ns/ID/net",
		"cgroup /b/pod27c71078-65c1-43ad-8e54-d45020b13264/x":   "cgroup /b/podUID/x",
		"cgroup /b/pod27c71078_65c1_43ad_8e54_d45020b13264":     "cgroup /b/podUID",
		"descriptor on socket:[1234]":                           "descriptor on socket",
		"descriptor on anon_inode:[pidfd]":                      "descriptor on anon_inode:[pidfd]",
		"file /root/snapshots/17/fs":                            "file /root/snapshots/N/fs",
		"file /usr/lib64/x":                                     "file /usr/lib64/x",
	} {
		if got := Plain(in); got != want {
			t.Errorf("Plain(%q) is %q, want %q", in, got, want)
		}
	}
}

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
)

// Without its records berth can't tell what is wanted of the pods: it leaves them
// alone, and says so, until somebody has decided.
func TestADamagedDatabaseEndsNoPod(t *testing.T) {
	n := newNode(t)
	text := n.file(pod("web", "Always", 1, "serve") + pod("counter", "Always", 1, "print-lines", "0", "--rate", "10"))
	n.must("run", "--detach", "--until", "ready", text)
	copied, err := os.ReadFile(n.home().Database())
	if err != nil {
		t.Fatal(err)
	}
	before := n.status("web").ContainerStatuses[0].ContainerID
	n.killAgent()
	garbage := bytes.Repeat([]byte{0xa5}, 200)
	if err := os.WriteFile(n.home().Database(), garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ps"}, {"describe", "web"}, {"logs", "web"}, {"stop", "web"}, {"run", text}, {"run", "--detach", text}} {
		out, code := n.berth(args...)
		if code != 1 {
			t.Errorf("%v ends with %d: %s", args, code, out)
		}
		for _, want := range []string{n.home().Database(), "damaged", "go on untouched", "default/counter, default/web", "put a copy of the file back", "berth cleanup"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v says nothing of %q:\n%s", args, want, out)
			}
		}
	}
	if now, err := os.ReadFile(n.home().Database()); err != nil || !bytes.Equal(now, garbage) {
		t.Errorf("the damaged file was touched: %v", err)
	}
	if err := os.WriteFile(n.home().Database(), copied, 0o600); err != nil {
		t.Fatal(err)
	}
	now := n.status("web")
	if now == nil || now.ContainerStatuses[0].ContainerID != before || now.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("with the copy back the pod is %v, and was %s", now, before)
	}

	// Cleanup gets by without it.
	n.killAgent()
	if err := os.WriteFile(n.home().Database(), garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := n.must("cleanup", "--force"); strings.Contains(out, "did not make") || strings.Contains(out, "is begun") {
		t.Errorf("cleanup says: %s", out)
	}
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

// With nothing to lose, work goes on; cleanup knows the file that was put aside.
func TestADamagedDatabaseWithoutPods(t *testing.T) {
	n := newNode(t)
	job := n.file(pod("job", "Never", 1, "true"))
	n.must("run", job)
	if err := os.WriteFile(n.home().Database(), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := n.must("ps"); !strings.Contains(out, "a new one is begun") {
		t.Errorf("ps says: %s", out)
	}
	n.must("run", job)
	if kept, err := filepath.Glob(n.home().BrokenDatabase() + "*"); err != nil || len(kept) != 1 {
		t.Errorf("kept are %v, %v", kept, err)
	}
	if out := n.must("cleanup", "--force"); strings.Contains(out, "did not make") {
		t.Errorf("cleanup says: %s", out)
	}
}

// On a full disk nothing is said to be done that the next agent would not know of.
func TestAFullDiskIsTold(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", n.root, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.berth("cleanup", "--force")
		_ = unix.Unmount(n.root, unix.MNT_DETACH)
		_ = os.Remove(n.root)
	})
	n.must("run", "--detach", "--until", "ready", n.file(pod("web", "Always", 1, "serve")+pod("other", "Always", 1, "serve")))
	ballast := filepath.Join(n.root, "ballast")
	fill := func() {
		t.Helper()
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 20; size >= 1; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}
	fill()
	// Large enough for pages that the database does not have yet.
	big := n.file(strings.Replace(pod("big", "Never", 1, "serve"), "metadata: {name: big}",
		"metadata: {name: big, annotations: {filler: "+strings.Repeat("x", 200<<10)+"}}", 1))
	if out, code := n.berth("run", "--detach", big); code != 0 || !strings.Contains(out, "can't be recorded") || !strings.Contains(out, "no space left") {
		t.Errorf("run ends with %d: %s", code, out)
	}
	out, code := n.berth("stop", "web")
	if code != 1 || strings.Contains(out, "web stopped") || !strings.Contains(out, "pod web has ended, but that can't be recorded") {
		t.Errorf("stop ends with %d: %s", code, out)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	// With room there is nothing that is answered and does not hold.
	n.must("stop", "web", "big")
	n.killAgent()
	for _, name := range []string{"web", "big"} {
		if s := n.status(name); s == nil || s.Reason != agent.ReasonStopped {
			t.Errorf("afterwards %s is %v", name, s)
		}
	}
	if s := n.status("other"); s == nil || s.Phase != corev1.PodRunning {
		t.Errorf("afterwards the other is %v", s)
	}
	n.must("rm", "--force", "--all")
}

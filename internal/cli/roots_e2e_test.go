package cli

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCleanupGoesOnWhenNoPodLives(t *testing.T) {
	n := newNode(t)
	n.must("run", "--until", "ready", n.file(pod("web", "Always", 1, "serve")))
	if out, code := n.berth("cleanup", "-y"); code != 1 || !strings.Contains(out, "runs 1 pod on") {
		t.Errorf("cleanup under a pod that lives ends with %d: %s", code, out)
	}
	n.must("stop", "web")
	if out := n.must("cleanup", "-y"); !strings.Contains(out, "removed everything") {
		t.Errorf("cleanup says: %s", out)
	}
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

func TestPodsThatEndedAreNotSaidToGoOn(t *testing.T) {
	n := newNode(t)
	first := n.start("run", n.file(pod("short", "Never", 1, "exit", "0", "--after", "0.4s")+pod("web", "Always", 1, "serve")))
	first.await(`^web: ready`)
	first.await(`^short/main: running`)
	first.signal(syscall.SIGKILL)
	first.wait()
	time.Sleep(time.Second)
	out := n.must("run", n.file(pod("other", "Never", 1, "true")))
	if !strings.Contains(out, "1 pod of an earlier run goes on: web ") {
		t.Errorf("it says:\n%s", out)
	}
}

func TestAnAgentOfAnotherRootOrRangeIsRefused(t *testing.T) {
	n := newNode(t)
	run := filepath.Join(t.TempDir(), "run")
	text := n.file(pod("web", "Always", 1, "serve"))
	n.must("run", "--run", run, "--until", "ready", text)
	other := &node{t: t, root: filepath.Join(t.TempDir(), "other")}
	for _, args := range [][]string{{"run", "--run", run, text}, {"ps", "--run", run}, {"cleanup", "--run", run, "--force"}} {
		if args[0] == "cleanup" {
			if err := os.MkdirAll(other.root, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if out, code := other.berth(args...); code != 2 || !strings.Contains(out, "belongs to the root "+n.root) {
			t.Errorf("%v of another root ends with %d: %s", args, code, out)
		}
	}
	if out, code := n.berth("run", "--run", run, "--network-cidr", "10.99.64.0/24", text); code != 2 || !strings.Contains(out, "--network-cidr is 10.99.64.0/24") {
		t.Errorf("run with another range ends with %d: %s", code, out)
	}
	// Nor does another root take the pods over when nobody is there.
	r := n.start("run", "--run", run, n.file(pod("next", "Always", 1, "serve")))
	r.await(`^next: ready`)
	pid, err := strconv.Atoi(n.home().Owner())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.await("this process goes on")
	r.signal(syscall.SIGKILL)
	r.wait()
	fresh := &node{t: t, root: filepath.Join(t.TempDir(), "fresh")}
	if out, code := fresh.berth("run", "--run", run, text); code != 2 || !strings.Contains(out, "belongs to the root "+n.root) {
		t.Errorf("run of another root ends with %d: %s", code, out)
	}
	if _, err := os.Stat(fresh.root); err == nil {
		t.Error("the other root was made")
	}
	if out := n.must("ps", "--run", run, "-o", "name"); out != "next\nweb\n" {
		t.Errorf("afterwards there are:\n%s", out)
	}
	n.must("rm", "--run", run, "--force", "web", "next")
	n.must("cleanup", "--run", run, "-y")
}

func TestCommandsMakeNoRoot(t *testing.T) {
	n := newNode(t)
	for _, args := range [][]string{{"ps"}, {"logs", "web"}, {"stop", "web"}, {"rm", "--all"}, {"exec", "web", "--", "true"},
		{"image", "ls"}, {"image", "rm", "a"}, {"image", "prune", "--all"}} {
		if out, code := n.berth(args...); code != 1 || !strings.Contains(out, "there is nothing of berth's at "+n.root) {
			t.Errorf("%v ends with %d: %s", args, code, out)
		}
	}
	if out, code := n.berth("image", "import", "/no/such/file.tar"); code != 1 || !strings.Contains(out, "/no/such/file.tar") {
		t.Errorf("an import of what is not there ends with %d: %s", code, out)
	}
	if out, code := n.berth("cleanup", "-y"); code != 0 || !strings.Contains(out, "there is nothing of berth's at "+n.root) {
		t.Errorf("cleanup of nothing ends with %d: %s", code, out)
	}
	for _, left := range n.leftovers() {
		t.Errorf("made: %s", left)
	}
}

// What is not berth's is neither used nor removed, whatever it looks like.
func TestForeignFoldersAreLeftAlone(t *testing.T) {
	n := newNode(t)
	precious := filepath.Join(t.TempDir(), "home")
	for _, name := range []string{"images/photo", "logs/diary", "pods/casts"} {
		if err := os.MkdirAll(filepath.Join(precious, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := n.file(pod("job", "Never", 1, "true"))
	for _, args := range [][]string{
		{"--root", precious, "run", text}, {"--root", precious, "cleanup", "--force"}, {"--root", precious, "ps"},
		{"--root", n.root, "--run", precious, "run", text}, {"--root", n.root, "--run", precious, "cleanup", "--force"},
	} {
		if out, code := n.finish(bare("", args...)); code != 2 || !strings.Contains(out, "berth did not make (images, logs, pods)") {
			t.Errorf("%v ends with %d: %s", args, code, out)
		}
	}
	left, err := filepath.Glob(precious + "/*/*")
	if err != nil || len(left) != 3 {
		t.Errorf("left are %q, %v", left, err)
	}
	if all, err := os.ReadDir(precious); err != nil || len(all) != 3 {
		t.Errorf("there is %v, %v", all, err)
	}

	n.must("run", text)
	mine := filepath.Join(n.root, "notes")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := n.must("cleanup", "-y"); !strings.Contains(out, "left "+mine+", which berth did not make") {
		t.Errorf("cleanup says: %s", out)
	}
	if all, err := os.ReadDir(n.root); err != nil || len(all) != 1 {
		t.Errorf("there is %v, %v", all, err)
	}
	if err := os.RemoveAll(n.root); err != nil {
		t.Fatal(err)
	}
}

// A root is the same by each of its names, and knows its run folder.
func TestARootHasOneIdentity(t *testing.T) {
	n := newNode(t)
	dir := filepath.Dir(n.root)
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	text := n.file(pod("web", "Always", 1, "serve"))
	if out, code := n.finish(bare(dir, "--root", "link/x", "--run", "link/y", "run", "--until", "ready", text)); code != 0 {
		t.Fatalf("run ends with %d: %s", code, out)
	}
	n.root = filepath.Join(dir, "real", "x")
	if out, code := n.finish(bare(dir, "--root", "real/x", "ps")); code != 0 || !strings.Contains(out, "web") {
		t.Errorf("ps by another name ends with %d: %s", code, out)
	}
	if h := n.home(); h.Run != filepath.Join(dir, "real", "y") {
		t.Errorf("the root knows the run folder %s", h.Run)
	}
	bridge := "berth" + n.home().Mark
	if _, err := net.InterfaceByName(bridge); err != nil {
		t.Errorf("bridge %s: %v", bridge, err)
	}
	n.must("cleanup", "--force")
	if _, err := net.InterfaceByName(bridge); err == nil {
		t.Errorf("bridge %s is left behind", bridge)
	}
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

// A command that has long to do in its own process does not keep the root.
func TestCleanupEndsAPull(t *testing.T) {
	n := newNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a registry that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pull := n.start("image", "pull", l.Addr().String()+"/never:1")
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	n.must("cleanup", "--force")
	if code := pull.wait(); code == 0 {
		t.Error("the pull ends well")
	}
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

func TestCleanupOfAMountPointEmptiesIt(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", n.root, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(n.root, unix.MNT_DETACH); _ = os.Remove(n.root) })
	n.must("run", n.file(pod("job", "Never", 1, "true")))
	if out := n.must("cleanup", "--force"); !strings.Contains(out, "removed everything") {
		t.Errorf("cleanup says: %s", out)
	}
	if left, err := os.ReadDir(n.root); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := unix.Unmount(n.root, 0); err != nil {
		t.Error(err)
	}
}

func TestAnAgentThatIsStoppedOrCannotBeReached(t *testing.T) {
	n := newNode(t)
	text := n.file(pod("web", "Always", 1, "serve"))
	n.must("run", "--until", "ready", text)
	pid, err := strconv.Atoi(n.home().Owner())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if out, code := n.berth("ps"); code != 1 || !strings.Contains(out, "(process "+strconv.Itoa(pid)+") does not answer") {
		t.Errorf("ps under a stopped agent ends with %d: %s", code, out)
	}
	if out, code := n.berth("cleanup", "-y"); code != 1 || !strings.Contains(out, "does not answer") {
		t.Errorf("cleanup under a stopped agent ends with %d: %s", code, out)
	}
	n.must("cleanup", "--force")

	n.must("run", "--until", "ready", text)
	if err := os.Remove(n.home().Socket()); err != nil {
		t.Fatal(err)
	}
	n.must("cleanup", "--force")
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

func TestAnAgentThatHangsWhileItIsUsed(t *testing.T) {
	n := newNode(t)
	text := n.file(pod("stubborn", "Always", 600, "ignore-term") + pod("counter", "Always", 1, "print-lines", "0", "--rate", "10"))
	n.must("run", "--detach", "--until", "ready", text)
	follows := n.start("run", text)
	follows.await(`^stubborn: ready`)
	logs := n.start("logs", "-f", "counter")
	logs.await(`line 5$`)
	stop := n.start("stop", "stubborn")
	follows.await(`^stubborn: stopping`)
	owner := n.home().Owner()
	pid, err := strconv.Atoi(owner)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	want := `\(process ` + owner + `\) does not answer: .*kill -CONT ` + owner
	stop.await("cannot (wait|ask) for the end of pod stubborn")
	stop.await(want)
	if code := stop.wait(); code != 1 {
		t.Errorf("stop ends with %d", code)
	}
	follows.signal(syscall.SIGINT)
	follows.await("cannot stop pod (stubborn|counter)")
	follows.await(want)
	if code := follows.wait(); code != 1 {
		t.Errorf("the run that is interrupted ends with %d", code)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What was under way goes on.
	last := len(numbers(logs.lines()))
	logs.await("line " + strconv.Itoa(last+20) + "$")
	n.must("rm", "--force", "--grace", "0s", "stubborn", "counter")
	logs.wait()
}

// What is accepted as a folder works as one: names of sockets would be too long.
func TestLongPaths(t *testing.T) {
	n := newNode(t)
	long := func(name string, length int) string {
		path := filepath.Join(t.TempDir(), name)
		return path + strings.Repeat("x", length-len(path))
	}
	n.root = long("root", 255)
	text := n.file(pod("web", "Always", 1, "serve"))
	n.must("run", "--run", long("run", 230), "--detach", "--until", "ready", text)
	n.killAgent()
	if out := n.must("exec", "web", "--", "/berth-demo", "echo", "here"); !strings.Contains(out, "here") {
		t.Errorf("exec says: %s", out)
	}
	if out := n.must("exec", "-i", "web", "--", "/berth-demo", "echo", "here"); !strings.Contains(out, "here") {
		t.Errorf("exec says: %s", out)
	}
	n.must("stop", "web")
	n.must("rm", "web")
	n.must("cleanup", "--force")
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

// Whoever removes the run folder by hand does not lock berth out.
func TestARunFolderThatSomebodyRemoved(t *testing.T) {
	n := newNode(t)
	text := n.file(pod("web", "Always", 1, "serve"))
	n.must("run", "--detach", "--until", "ready", text)
	run := n.home().Run
	_ = os.RemoveAll(run) // what is mounted stays
	if _, err := os.Stat(filepath.Join(run, "cri")); err != nil {
		t.Fatalf("nothing is left that could be in the way: %v", err)
	}
	n.killAgent()
	n.must("ps")
	n.must("run", "--detach", "--until", "ready", text)
	_ = os.RemoveAll(run)
	n.must("cleanup", "--force")
	for _, left := range n.leftovers() {
		t.Errorf("left behind: %s", left)
	}
}

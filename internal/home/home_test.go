package home

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// find fails the test if the folders can't be used.
func find(t *testing.T, root, run string) Home {
	t.Helper()
	h, err := Find(root, run)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func claim(t *testing.T, h Home) *Lock {
	t.Helper()
	l, err := h.Claim(t.Context(), Pods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree lists all that is in a folder.
func tree(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel != "." {
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// temp is a folder whose path has no links and is short enough.
func temp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What is not berth's is neither taken nor changed, by whatever of its names it
// looks like berth's.
func TestForeignFoldersAreLeftAlone(t *testing.T) {
	for _, name := range []string{"passwd", "images", "logs", "pods", "berth.db", "shim", "cri", ".hidden"} {
		d := temp(t)
		write(t, filepath.Join(d, "theirs", name, "file"))
		before := tree(t, d)
		for _, c := range [][2]string{{d + "/theirs", d + "/run"}, {d + "/root", d + "/theirs"}} {
			if _, err := Find(c[0], c[1]); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: Find(%q) gives %v", name, c, err)
			}
			// One who looked earlier, when the folder was not there yet.
			h := Home{Root: c[0], Run: c[1], Mark: "-x"}
			if l, err := h.Claim(t.Context(), Pods); !errors.Is(err, ErrForeign) {
				t.Errorf("%s: Claim(%q) gives %v, %v", name, c, l, err)
			}
		}
		after := slices.DeleteFunc(tree(t, d), func(s string) bool { return s == "root" })
		if !slices.Equal(before, after) {
			t.Errorf("%s: before %q, after %q", name, before, after)
		}
	}
}

func TestRemoveTakesWhatBerthMade(t *testing.T) {
	d := temp(t)
	h := find(t, d+"/a/root", d+"/b/run")
	claim(t, h)
	for _, path := range slices.Concat(h.madeInRoot(), h.madeInRun()) {
		if base := filepath.Base(path); base == markerName || base == lockName || base == claimName {
			continue
		}
		write(t, filepath.Join(path, "file"))
	}
	left, err := h.Remove()
	if err != nil || len(left) > 0 {
		t.Fatalf("left %q, %v", left, err)
	}
	if got := tree(t, d); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("left behind: %q", got)
	}
}

func TestRemoveLeavesTheRest(t *testing.T) {
	d := temp(t)
	h := find(t, d+"/root", d+"/run")
	claim(t, h)
	write(t, h.Database())
	write(t, h.BrokenDatabase()+"1764601234")
	write(t, h.Root+"/mine/file")
	write(t, h.Run+"/mine2")
	left, err := h.Remove()
	if want := []string{h.Run + "/mine2", h.Root + "/mine"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, %v; want %q", left, err, want)
	}
	if got, want := tree(t, d), []string{"root", "root/mine", "root/mine/file", "run", "run/mine2"}; !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
}

// A root is one thing by whatever name it is reached, and remembers the rest.
func TestARootRemembers(t *testing.T) {
	d := temp(t)
	if err := os.Mkdir(d+"/real", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", d+"/link"); err != nil {
		t.Fatal(err)
	}
	h := find(t, d+"/link/x", d+"/link/y")
	if h.Root != d+"/real/x" || h.Run != d+"/real/y" || h.Exists() || h.Mark == "" {
		t.Errorf("got %+v", h)
	}
	claim(t, h).Close()
	t.Chdir(d)
	for _, root := range []string{d + "/real/x", d + "/link/x", "link/x", "./real/../real/x/"} {
		again := find(t, root, "")
		if again.Run != h.Run || again.Mark != h.Mark || !again.Exists() {
			t.Errorf("%s: got %+v, want %+v", root, again, h)
		}
	}
	if _, err := Find(d+"/real/x", d+"/other"); err == nil || !strings.Contains(err.Error(), "leave --run out") {
		t.Errorf("another run folder gives %v", err)
	}
	if err := os.RemoveAll(h.Run); err != nil { // as a reboot does
		t.Fatal(err)
	}
	moved := find(t, d+"/real/x", d+"/other")
	claim(t, moved).Close()
	if again := find(t, d+"/real/x", ""); again.Run != d+"/other" || again.Mark != h.Mark {
		t.Errorf("after a reboot: %+v", again)
	}
}

// What one sort of owner made, another would take for garbage.
func TestARootHasOneUse(t *testing.T) {
	d := temp(t)
	h := find(t, d+"/root", d+"/run")
	claim(t, h).Close()
	h = find(t, d+"/root", "")
	if _, err := h.Claim(t.Context(), CRI); err == nil || !strings.Contains(err.Error(), "give each its own --root") {
		t.Errorf("got %v", err)
	}
	for _, use := range []Use{Any, Pods} { // looking at it does not change it
		l, err := h.Claim(t.Context(), use)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

func TestRunFoldersBelongToOneRoot(t *testing.T) {
	d := temp(t)
	claim(t, find(t, d+"/one", d+"/run")).Close()
	if _, err := Find(d+"/two", d+"/run"); err == nil || !strings.Contains(err.Error(), "belongs to the root "+d+"/one") {
		t.Errorf("the run folder of another root: %v", err)
	}
	for _, run := range []string{d, d + "/two"} {
		if _, err := Find(d+"/two", run); err == nil {
			t.Errorf("run folder %s is taken for root %s", run, d+"/two")
		}
	}
	if err := os.RemoveAll(d + "/one"); err != nil {
		t.Fatal(err)
	}
	claim(t, find(t, d+"/two", d+"/run")) // its root is no more
}

// What is left of a run folder after somebody removed what could be removed is
// still the root's, and only that.
func TestAPartlyRemovedRunFolder(t *testing.T) {
	d := temp(t)
	h := find(t, d+"/root", d+"/run")
	claim(t, h).Close()
	write(t, h.CRI()+"/sandboxes/x")
	if err := os.Remove(filepath.Join(h.Run, claimName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(d+"/root", d+"/other"); err == nil || !strings.Contains(err.Error(), "uses the run folder "+h.Run) {
		t.Errorf("another run folder: %v", err)
	}
	if _, err := Find(d+"/foreign", h.Run); !errors.Is(err, ErrForeign) {
		t.Errorf("another root: %v", err)
	}
	write(t, h.Run+"/notes")
	if _, err := Find(d+"/root", ""); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "(notes)") {
		t.Errorf("with something else in it: %v", err)
	}
	if err := os.RemoveAll(h.Run + "/notes"); err != nil {
		t.Fatal(err)
	}
	h = find(t, d+"/root", "")
	claim(t, h)
	if owner, err := ownerOfRun(h.Run); owner != h.Root || err != nil {
		t.Errorf("it is %q's, %v", owner, err)
	}
	if left, err := h.Remove(); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

func TestPathsThatContainersCannotUse(t *testing.T) {
	d := temp(t)
	for path, want := range map[string]string{
		d + "/a,b":                         `","`,
		d + "/a:b":                         `":"`,
		d + `/a\b`:                         `"\\"`,
		d + "/a\nb":                        `"\n"`,
		d + "/" + strings.Repeat("x", 250): " bytes, at most 2",
		d + "/dangling":                    "does not exist",
	} {
		if strings.HasSuffix(path, "dangling") {
			if err := os.Symlink("nowhere", path); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range [][2]string{{path, ""}, {d + "/ok", path}} {
			if _, err := Find(c[0], c[1]); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v, want %s", c, err, want)
			}
		}
	}
	long := func(length int) string { return d + "/" + strings.Repeat("x", length-len(d)-1) }
	find(t, long(255), long(230))
	for limit, c := range map[string][2]string{"255": {long(256), ""}, "230": {d + "/ok", long(231)}} {
		if _, err := Find(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "at most "+limit+" go") {
			t.Errorf("%q: got %v", c, err)
		}
	}
	for _, name := range []string{"with space", "ümläut", "a=b", "%s", "-dash", "'quote\""} {
		find(t, filepath.Join(d, name), "")
	}
}

func TestAFileIsNoFolder(t *testing.T) {
	d := temp(t)
	if err := os.WriteFile(d+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, c := range map[string][2]string{
		"the root " + d + "/file":                 {d + "/file", ""},
		"the run folder " + d + "/file":           {d + "/ok", d + "/file"},
		"the root " + d + "/file/below":           {d + "/file/below", ""},
		"the run folder " + d + "/file/far/below": {d + "/ok", d + "/file/far/below"},
	} {
		want := "cannot use " + path + ": " + d + "/file is a file, not a folder; choose another"
		if _, err := Find(c[0], c[1]); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestDamagedMarker(t *testing.T) {
	d := temp(t)
	h := find(t, d+"/root", d+"/run")
	claim(t, h).Close()
	for _, text := range []string{"", "{", `{"run": "relative"}`, `[]`} {
		if err := os.WriteFile(filepath.Join(h.Root, markerName), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(h.Root, ""); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// A new file system, and a root whose first agent was killed early, are empty.
func TestEmptyEnough(t *testing.T) {
	d := temp(t)
	for _, name := range rootNames {
		write(t, d+"/root/"+name)
	}
	claim(t, find(t, d+"/root", d+"/run"))
}

func TestCurrentFolderIsGone(t *testing.T) {
	d := temp(t)
	t.Chdir(d)
	if err := os.Remove(d); err != nil {
		t.Fatal(err)
	}
	if _, err := Find("relative", ""); err == nil || !strings.Contains(err.Error(), "give an absolute path") {
		t.Errorf("got %v", err)
	}
}

// A second process is refused while the first lives, and waits while it dies.
func TestLockWaitsForTheDyingOnly(t *testing.T) {
	if root := os.Getenv("BERTH_LOCK_HOLDER"); root != "" {
		l, err := find(t, root, root+"-run").Claim(t.Context(), Pods)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // or the lock would be garbage, and closed
		os.Stdout.WriteString("held\n")
		select {}
	}
	h := find(t, temp(t)+"/root", "")
	h.Run = h.Root + "-run"
	holder := exec.Command(os.Args[0], "-test.run", "^TestLockWaitsForTheDyingOnly$")
	holder.Env = append(os.Environ(), "BERTH_LOCK_HOLDER="+h.Root)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Wait() }() // it is killed
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Claim(t.Context(), Pods); !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	claim(t, h) // at once, and the holder is not even reaped
}

// Who looks while another one writes whose the folders are sees them as they are.
func TestLookingWhileAnotherWrites(t *testing.T) {
	d := temp(t)
	h := find(t, d+"/root", d+"/run")
	claim(t, h).Close()
	write(t, h.Shim()+"/file")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			if err := errors.Join(h.writeMarker(marker{Run: h.Run, Mark: h.Mark, Use: Pods}), h.writeClaim()); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			find(t, d+"/root", "")
		}
	}
}

package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// hostFolder is a folder of "the host" with files, on a shared mount of its own
// as / is under systemd, and with another file system mounted in it.
func hostFolder(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	must(t, os.MkdirAll(filepath.Join(dir, "data/inner"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "data/precious"), []byte("x"), 0o600))
	must(t, unix.Mount("tmpfs", filepath.Join(dir, "data/inner"), "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(dir, "data/inner/precious"), []byte("x"), 0o600))
	return dir
}

// intact fails the test if anything in the host's folder is gone.
func intact(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"data/precious", "data/inner/precious"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("the host lost %s: %v", name, err)
		}
	}
	if is, _ := isMount(filepath.Join(dir, "data/inner")); !is {
		t.Error("the host lost a mount")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// However the host's folder came to be mounted below the pod's, or linked from
// there, removal must not reach it.
func TestHostPathContentIsNeverTouched(t *testing.T) {
	below := map[string]func(t *testing.T, m *Manager, uid types.UID, host string){
		"bound over a volume": func(t *testing.T, m *Manager, uid types.UID, host string) {
			must(t, unix.Mount(host, m.Volume(uid, EmptyDir, "v"), "", unix.MS_BIND|unix.MS_REC, ""))
		},
		"bound deep in a volume": func(t *testing.T, m *Manager, uid types.UID, host string) {
			deep := filepath.Join(m.Volume(uid, EmptyDir, "v"), "a/b/c/d")
			must(t, os.MkdirAll(deep, 0o755))
			must(t, unix.Mount(host, deep, "", unix.MS_BIND|unix.MS_REC, ""))
		},
		"bound twice at one place": func(t *testing.T, m *Manager, uid types.UID, host string) {
			for range 2 {
				target := m.Volume(uid, EmptyDir, "v")
				must(t, unix.Mount(host, target, "", unix.MS_BIND|unix.MS_REC, ""))
				// Or the second would be mounted on the host as well.
				must(t, unix.Mount("", target, "", unix.MS_PRIVATE, ""))
			}
		},
		"bound in a volume in memory": func(t *testing.T, m *Manager, uid types.UID, host string) {
			dir := filepath.Join(m.Volume(uid, EmptyDir, "ram"), "x")
			must(t, os.Mkdir(dir, 0o755))
			must(t, unix.Mount(host, dir, "", unix.MS_BIND|unix.MS_REC, ""))
		},
		"bound in the pod's folder": func(t *testing.T, m *Manager, uid types.UID, host string) {
			dir := filepath.Join(m.Pod(uid), "containers/app")
			must(t, os.MkdirAll(dir, 0o755))
			must(t, unix.Mount(host, dir, "", unix.MS_BIND|unix.MS_REC, ""))
		},
		"a file of it bound": func(t *testing.T, m *Manager, uid types.UID, host string) {
			file := filepath.Join(m.Volume(uid, EmptyDir, "v"), "file")
			must(t, os.WriteFile(file, nil, 0o600))
			must(t, unix.Mount(filepath.Join(host, "data/precious"), file, "", unix.MS_BIND, ""))
		},
		"linked": func(t *testing.T, m *Manager, uid types.UID, host string) {
			must(t, os.Symlink(host, filepath.Join(m.Volume(uid, EmptyDir, "v"), "link")))
			must(t, os.Symlink(host, m.Volume(uid, EmptyDir, "linked")))
			must(t, os.Symlink(filepath.Join(host, "data"), filepath.Join(m.volumes(uid), "kind")))
		},
		"as sub-paths": func(t *testing.T, m *Manager, uid types.UID, host string) {
			for i, sub := range []string{"data", "data/precious", "data/inner", "made/here"} {
				_, err := m.SubPath(t.Context(), uid, SubPath{Volume: "h", HostPath: host, Container: "app", Index: i, Path: sub})
				must(t, err)
			}
		},
		"with a mount that a container made in a sub-path": func(t *testing.T, m *Manager, uid types.UID, host string) {
			target, err := m.SubPath(t.Context(), uid, SubPath{Volume: "h", HostPath: host, Container: "app", Path: "data"})
			must(t, err)
			must(t, os.MkdirAll(filepath.Join(target, "new"), 0o755))
			must(t, unix.Mount("tmpfs", filepath.Join(target, "new"), "tmpfs", 0, ""))
		},
	}
	for name, bind := range below {
		t.Run(name, func(t *testing.T) {
			host := hostFolder(t)
			m := newManager(t, &sources{})
			pod := podOf(t, "volumes: [{name: v}, {name: ram, emptyDir: {medium: Memory}}, {name: h, hostPath: {path: "+host+"}}]")
			prepare(t, m, pod)
			bind(t, m, pod.UID, host)
			before := len(mountsBelow(t, host))
			must(t, m.RemovePod(t.Context(), pod.UID))
			intact(t, host)
			if after := len(mountsBelow(t, host)); after != before {
				t.Errorf("the host has %d mounts, had %d", after, before)
			}
			if left := mountsBelow(t, m.Root); len(left) > 0 {
				t.Errorf("mounts left: %q", left)
			}
			if m.Exists(pod.UID) {
				t.Error("the pod's folder is left")
			}
		})
	}
}

// removeTree alone, as if nothing could be unmounted.
func TestRemovalStopsAtMounts(t *testing.T) {
	host := hostFolder(t)
	for name, bind := range map[string]string{"a folder": "data", "a file": "data/precious"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			target := filepath.Join(dir, "deep/target")
			must(t, makeTarget(target, bind == "data"))
			must(t, unix.Mount(filepath.Join(host, bind), target, "", unix.MS_BIND|unix.MS_REC, ""))
			t.Cleanup(func() { must(t, unmountAll(dir)) })
			if err := removeTree(dir); err == nil {
				t.Error("no error")
			}
			intact(t, host)
			if is, _ := isMount(target); !is {
				t.Error("the mount is gone")
			}
		})
	}
}

func TestAnyTreeOfAContainerIsRemoved(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "volumes: [{name: v}]")
	dir := prepare(t, m, pod)["v"].HostPath
	// Deeper than a path can name and than files can be open.
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := unix.Rlimit{Cur: 500, Max: limit.Max}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	t.Cleanup(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 1200 {
		must(t, unix.Mkdirat(fd, "d", 0o700))
		must(t, unix.Mknodat(fd, "f", unix.S_IFREG, 0))
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	// Many entries, odd names, no permissions, all kinds.
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), nil, 0))
	}
	must(t, os.Mkdir(filepath.Join(dir, "\xff\n*"), 0))
	must(t, os.Mkdir(filepath.Join(dir, strings.Repeat("n", 255)), 0))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, os.Symlink("self", filepath.Join(dir, "self")))
	must(t, m.RemovePod(t.Context(), pod.UID))
	entries, err := os.ReadDir(m.Pods())
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A crash may come between any two steps of preparing. What it can leave is
// listed here; teardown works without the pod's spec, and preparing goes on.
func TestTeardownAndPrepareAfterACrash(t *testing.T) {
	s := &sources{configMaps: map[string]map[string]string{"web": {"mode": "1"}}, secrets: map[string]map[string]string{"db": {"p": "x"}}}
	states := map[string]func(t *testing.T, m *Manager, uid types.UID){
		"nothing": func(*testing.T, *Manager, types.UID) {},
		"a folder to mount on": func(t *testing.T, m *Manager, uid types.UID) {
			must(t, os.MkdirAll(m.Volume(uid, Secret, "creds"), 0o750))
		},
		"a mount without files": func(t *testing.T, m *Manager, uid types.UID) {
			must(t, mountAt(m.Volume(uid, Secret, "creds"), "tmpfs", "mode=777"))
		},
		"a folder without files": func(t *testing.T, m *Manager, uid types.UID) {
			must(t, makeFolder(m.Volume(uid, ConfigMap, "conf"), Step{Mode: 0o777}))
		},
		"a half-made folder": func(t *testing.T, m *Manager, uid types.UID) {
			must(t, os.MkdirAll(filepath.Join(m.volumes(uid), "emptyDir", halfMade("scratch")), 0o700))
		},
		"a sub-path's mount point": func(t *testing.T, m *Manager, uid types.UID) {
			must(t, makeTarget(filepath.Join(m.subPaths(uid), "scratch/app/0"), false))
		},
		"a reboot: folders without their mounts": func(t *testing.T, m *Manager, uid types.UID) {
			prepare(t, m, podOf(t, everyKind))
			must(t, unmountAll(m.Root))
		},
		"a half-done teardown": func(t *testing.T, m *Manager, uid types.UID) {
			prepare(t, m, podOf(t, everyKind))
			must(t, unmount(m.Volume(uid, Projected, "all")))
			must(t, os.RemoveAll(m.Volume(uid, ConfigMap, "conf")))
		},
	}
	for name, make := range states {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, s)
			pod := podOf(t, everyKind)
			make(t, m, pod.UID)
			mounted := prepare(t, m, pod)
			if got := tree(t, mounted["creds"].HostPath); got["p"] != "-r--r----- x" {
				t.Errorf("secret holds %v", got)
			}
			for kind := range mounted {
				if n := len(mountsBelow(t, mounted[kind].HostPath)); n > 1 {
					t.Errorf("%s is mounted %d times", kind, n)
				}
			}
			must(t, m.RemovePod(t.Context(), pod.UID))

			make(t, m, pod.UID)
			must(t, m.RemovePod(t.Context(), pod.UID))
			if left := mountsBelow(t, m.Root); len(left) > 0 || m.Exists(pod.UID) {
				t.Errorf("left: %q, folder %v", left, m.Exists(pod.UID))
			}
		})
	}
}

func TestOpenFilesDoNotKeepAVolume(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "volumes: [{name: ram, emptyDir: {medium: Memory}}]")
	f, err := os.Create(filepath.Join(prepare(t, m, pod)["ram"].HostPath, "busy"))
	must(t, err)
	defer f.Close()
	must(t, m.RemovePod(t.Context(), pod.UID))
	if left := mountsBelow(t, m.Root); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestPodsDoNotTouchEachOther(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "volumes: [{name: ram, emptyDir: {medium: Memory}}, {name: disk}]")
	// One uid begins with the other, as paths may.
	for _, uid := range []types.UID{"1", "12"} {
		pod.UID = uid
		prepare(t, m, pod)
	}
	uids, err := m.List()
	if err != nil || !slices.Equal(uids, []types.UID{"1", "12"}) {
		t.Errorf("List = %q, %v", uids, err)
	}
	must(t, m.RemovePod(t.Context(), "1"))
	if is, _ := isMount(m.Volume("12", EmptyDir, "ram")); !is || m.Exists("1") || !m.Exists("12") {
		t.Error("the wrong pod was removed")
	}
	must(t, m.RemovePod(t.Context(), "12"))
}

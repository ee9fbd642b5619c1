package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSubPaths(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "loot"), []byte("x"), 0o600))
	tests := map[string]struct {
		path    string
		make    func(volume string) error
		want    string // name of a file or folder that must be the same as the result
		wantErr string
	}{
		"a folder that is there": {"a", func(v string) error { return os.Mkdir(filepath.Join(v, "a"), 0o700) }, "a", ""},
		"a file that is there":   {"f", func(v string) error { return os.WriteFile(filepath.Join(v, "f"), nil, 0o600) }, "f", ""},
		"folders that are not":   {"x/y/z", func(string) error { return nil }, "x/y/z", ""},
		"the volume itself":      {".", func(string) error { return nil }, ".", ""},
		"a link to a place in the volume": {"l/sub", func(v string) error {
			must(t, os.MkdirAll(filepath.Join(v, "real/sub"), 0o700))
			return os.Symlink("real", filepath.Join(v, "l"))
		}, "real/sub", ""},
		"an absolute link to a place in the volume": {"l", func(v string) error {
			must(t, os.Mkdir(filepath.Join(v, "real"), 0o700))
			return os.Symlink(filepath.Join(v, "real"), filepath.Join(v, "l"))
		}, "real", ""},
		"a missing folder behind a link": {"l/new", func(v string) error {
			must(t, os.Mkdir(filepath.Join(v, "real"), 0o700))
			return os.Symlink("real", filepath.Join(v, "l"))
		}, "real/new", ""},
		"a link out of the volume":          {"l", func(v string) error { return os.Symlink(outside, filepath.Join(v, "l")) }, "", "leads out of the volume"},
		"a file behind a link out of it":    {"l/loot", func(v string) error { return os.Symlink(outside, filepath.Join(v, "l")) }, "", "leads out of the volume"},
		"a new folder behind a link out":    {"l/new", func(v string) error { return os.Symlink(outside, filepath.Join(v, "l")) }, "", "leads out of the volume"},
		"a relative link out of the volume": {"l", func(v string) error { return os.Symlink("../..", filepath.Join(v, "l")) }, "", "leads out of the volume"},
		"a link to nothing":                 {"l", func(v string) error { return os.Symlink(filepath.Join(outside, "new"), filepath.Join(v, "l")) }, "", "became a link"},
		"a link to itself":                  {"l", func(v string) error { return os.Symlink("l", filepath.Join(v, "l")) }, "", "too many links"},
		"a folder below a file":             {"f/x", func(v string) error { return os.WriteFile(filepath.Join(v, "f"), nil, 0o600) }, "", "not a directory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, &sources{})
			pod := podOf(t, "securityContext: {fsGroup: 2000}\nvolumes: [{name: v}]")
			volume := prepare(t, m, pod)["v"].HostPath
			must(t, tt.make(volume))
			got, err := m.SubPath(t.Context(), pod.UID, SubPath{Volume: "v", HostPath: volume, Container: "app", Index: 3, Path: tt.path})
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("%q, error %v, want %q", got, err, tt.wantErr)
				}
				if _, err := os.Lstat(filepath.Join(outside, "new")); err == nil {
					t.Error("a folder was made outside of the volume")
				}
				return
			}
			must(t, err)
			a, err := os.Stat(got)
			must(t, err)
			b, err := os.Stat(filepath.Join(volume, tt.want))
			must(t, err)
			if !os.SameFile(a, b) {
				t.Errorf("%s is not %s", got, tt.want)
			}
			if strings.Contains(tt.path, "y/") || strings.HasSuffix(tt.path, "new") {
				if a.Mode() != fs.ModeDir|fs.ModeSetgid|0o777 {
					t.Errorf("made with mode %v, want the volume's", a.Mode())
				}
			}
			must(t, m.RemovePod(t.Context(), pod.UID))
			if left := mountsBelow(t, m.Root); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// The next attempt of a container gets what the path means then, also if a
// folder has become a file, and mounts don't pile up.
func TestSubPathsAreResolvedAnewForEachAttempt(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "volumes: [{name: v}]")
	volume := prepare(t, m, pod)["v"].HostPath
	for i := range 4 {
		must(t, os.RemoveAll(filepath.Join(volume, "x")))
		if i%2 == 0 {
			must(t, os.Mkdir(filepath.Join(volume, "x"), 0o700))
		} else {
			must(t, os.WriteFile(filepath.Join(volume, "x"), nil, 0o600))
		}
		got, err := m.SubPath(t.Context(), pod.UID, SubPath{Volume: "v", HostPath: volume, Container: "app", Path: "x"})
		must(t, err)
		if info, err := os.Stat(got); err != nil || info.IsDir() != (i%2 == 0) {
			t.Errorf("attempt %d: %v, %v", i, info, err)
		}
		if n := len(mountsBelow(t, m.subPaths(pod.UID))); n != 1 {
			t.Errorf("attempt %d: %d mounts", i, n)
		}
	}
}

// A container swaps a folder for a link while its sub-path is prepared. Whatever
// happens, nothing outside of the volume is handed out.
func TestSubPathsCannotBeRacedOutOfTheVolume(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "volumes: [{name: v}]")
	volume := prepare(t, m, pod)["v"].HostPath
	outside := t.TempDir()
	must(t, os.Mkdir(filepath.Join(outside, "sub"), 0o700))
	secret, err := os.Stat(filepath.Join(outside, "sub"))
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(volume, "a/sub"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(volume, "b")))
	stop := make(chan struct{})
	var racer sync.WaitGroup
	racer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				a, b := filepath.Join(volume, "a"), filepath.Join(volume, "b")
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	})
	given := 0
	for i := range 500 {
		got, err := m.SubPath(t.Context(), pod.UID, SubPath{Volume: "v", HostPath: volume, Container: "app", Index: i % 7, Path: "a/sub"})
		if err != nil {
			continue
		}
		given++
		info, err := os.Stat(got)
		must(t, err)
		if os.SameFile(info, secret) {
			t.Fatal("a folder outside of the volume was handed out")
		}
	}
	close(stop)
	racer.Wait()
	if given == 0 {
		t.Error("no sub-path was ever prepared: the race was not tried")
	}
}

// A sub-path of a configMap is the version of the moment, as in Kubernetes.
func TestSubPathOfAConfigMapStaysAtItsVersion(t *testing.T) {
	s := &sources{configMaps: map[string]map[string]string{"web": {"mode": "old"}}}
	m := newManager(t, s)
	pod := podOf(t, "volumes: [{name: v, configMap: {name: web}}]")
	volume := prepare(t, m, pod)["v"].HostPath
	got, err := m.SubPath(t.Context(), pod.UID, SubPath{Volume: "v", HostPath: volume, Container: "app", Path: "mode"})
	must(t, err)
	s.configMaps["web"]["mode"] = "new"
	must(t, m.Refresh(t.Context(), pod))
	for path, want := range map[string]string{got: "old", filepath.Join(volume, "mode"): "new"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v, want %q", path, b, err, want)
		}
	}
}

func TestRefreshFollowsTheAPI(t *testing.T) {
	s := &sources{
		configMaps: map[string]map[string]string{"web": {"a": "1"}},
		secrets:    map[string]map[string]string{},
	}
	m := newManager(t, s)
	pod := podOf(t, `
securityContext: {fsGroup: 2000}
containers:
- name: app
  volumeMounts: [{name: conf, mountPath: /etc/app}, {name: scratch, mountPath: /etc/app/tmp/x}]
volumes:
- {name: scratch, emptyDir: {}}
- {name: conf, configMap: {name: web}}
- {name: maybe, secret: {secretName: db, optional: true}}
- {name: self, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
`)
	if err := m.Refresh(t.Context(), pod); err != nil || m.Exists(pod.UID) {
		t.Errorf("refresh of a pod without volumes: %v, made something: %v", err, m.Exists(pod.UID))
	}
	mounted := prepare(t, m, pod)
	expect := func(volume string, want ...string) {
		t.Helper()
		var got []string
		for name, text := range tree(t, mounted[volume].HostPath) {
			got = append(got, name+" "+text)
		}
		if fmt.Sprint(sorted(got)) != fmt.Sprint(sorted(want)) {
			t.Errorf("%s holds %q, want %q", volume, got, want)
		}
	}
	expect("conf", "a -rw-r--r-- 1", "tmp folder", "tmp/x folder")
	expect("maybe")

	s.configMaps["web"] = map[string]string{"b": "2"}
	s.secrets["db"] = map[string]string{"p": "x"}
	pod.Labels["app"] = "new"
	must(t, m.Refresh(t.Context(), pod))
	expect("conf", "b -rw-r--r-- 2", "tmp folder", "tmp/x folder")
	expect("maybe", "p -rw-r--r-- x")
	expect("self", `labels -rw-r--r-- app="new"`)

	delete(s.configMaps, "web")
	delete(s.secrets, "db")
	err := m.Refresh(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), `cannot refresh volume "conf": configmap "web" not found`) {
		t.Errorf("error %v", err)
	}
	expect("conf", "b -rw-r--r-- 2", "tmp folder", "tmp/x folder") // the old stays
	expect("maybe")
}

func TestReadFileStaysInTheVolume(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "loot")
	must(t, os.WriteFile(outside, []byte("loot"), 0o600))
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "sub/env"), []byte("A='1'"), 0o600))
	must(t, os.Symlink("/sub/env", filepath.Join(dir, "link")))
	must(t, os.Symlink(outside, filepath.Join(dir, "out")))
	must(t, os.Symlink(strings.Repeat("../", 20)+outside, filepath.Join(dir, "up")))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, maxReadBytes+1), 0o600))
	for path, want := range map[string]string{"sub/env": "A='1'", "link": "A='1'", "sub/../link": "A='1'"} {
		if b, err := ReadFile(dir, path); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	for _, path := range []string{"absent", "out", "up", "../" + filepath.Base(filepath.Dir(outside))} {
		if b, err := ReadFile(dir, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	for path, want := range map[string]string{"pipe": "named pipe", "sub": "directory", "big": "larger than"} {
		if _, err := ReadFile(dir, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

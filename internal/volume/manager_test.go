package volume

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// sources is Sources from maps of data by object name.
type sources struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
	broken     error
}

func (s *sources) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	data, ok := s.configMaps[name]
	switch {
	case s.broken != nil:
		return nil, s.broken
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: maps.Clone(data)}, nil
}

func (s *sources) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	data, ok := s.secrets[name]
	switch {
	case s.broken != nil:
		return nil, s.broken
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		out.Data[k] = []byte(v)
	}
	return out, nil
}

// newManager is a Manager in a folder of its own, on a file system of its own so
// that nothing of the host is near. The test fails if mounts are left behind.
func newManager(t *testing.T, s *sources) *Manager {
	t.Helper()
	needRoot(t)
	m, err := New(Config{
		Root:        filepath.Join(t.TempDir(), "root"),
		Sources:     s,
		Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("2")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmountAll(m.Root); err != nil {
			t.Error(err)
		}
	})
	return m
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
}

// podOf is a pod with the volumes (YAML, as in a manifest) and one container
// that mounts each of them at /NAME.
func podOf(t *testing.T, volumes string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "1234", Labels: map[string]string{"app": "web"},
	}}
	if err := yaml.UnmarshalStrict([]byte(volumes), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	}
	for _, v := range pod.Spec.Volumes {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return pod
}

func prepare(t *testing.T, m *Manager, pod *corev1.Pod) map[string]Mounted {
	t.Helper()
	mounted, err := m.Prepare(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return mounted
}

// tree describes what a container sees in a volume: "PATH MODE GID content".
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if rel == "." || strings.HasPrefix(rel, "..") {
			if e.IsDir() && rel != "." {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if info.IsDir() {
			real, err := filepath.EvalSymlinks(name)
			if err != nil {
				return err
			}
			if real == name { // one that no file stands for, or part of a version
				if !strings.Contains(name, "/..") {
					all[rel] = "folder"
				}
				return nil
			}
			for inner, text := range tree(t, real) {
				all[filepath.Join(rel, inner)] = text
			}
			return nil
		}
		content, err := os.ReadFile(name)
		all[rel] = info.Mode().Perm().String() + " " + string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, i := range infos {
		all = append(all, i.Mountpoint)
	}
	return all
}

const everyKind = `
securityContext: {fsGroup: 2000}
containers:
- name: app
  resources: {limits: {cpu: 250m}}
volumes:
- name: scratch
  emptyDir: {}
- name: ram
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: conf
  configMap: {name: web, defaultMode: 0644}
- name: creds
  secret: {secretName: db, defaultMode: 0400}
- name: self
  downwardAPI:
    items:
    - {path: labels, fieldRef: {fieldPath: metadata.labels}}
    - {path: deep/cpu, mode: 0600, resourceFieldRef: {containerName: app, resource: limits.cpu, divisor: 1m}}
    - {path: deep/memory, resourceFieldRef: {containerName: app, resource: limits.memory}}
- name: all
  projected:
    sources:
    - configMap: {name: web, items: [{key: mode, path: sub/mode}]}
    - secret: {name: db}
    - secret: {name: absent, optional: true}
    - configMap: {name: web, optional: true, items: [{key: absent, path: absent}]}
`

func TestEachKindHoldsWhatTheManifestSays(t *testing.T) {
	s := &sources{
		configMaps: map[string]map[string]string{"web": {"mode": "fast", "app.conf": "a=1"}},
		secrets:    map[string]map[string]string{"db": {"password": "x"}},
	}
	m := newManager(t, s)
	pod := podOf(t, everyKind)
	mounted := prepare(t, m, pod)

	want := map[string]map[string]string{
		"scratch": {},
		"ram":     {},
		"conf":    {"mode": "-rw-r--r-- fast", "app.conf": "-rw-r--r-- a=1"},
		"creds":   {"password": "-r--r----- x"},
		"self":    {"labels": "-rw-r--r-- app=\"web\"", "deep/cpu": "-rw-r----- 250", "deep/memory": "-rw-r--r-- 67108864"},
		"all":     {"sub/mode": "-rw-r--r-- fast", "password": "-rw-r--r-- x"},
	}
	got := map[string]map[string]string{}
	for name, v := range mounted {
		got[name] = tree(t, v.HostPath)
		info, err := os.Stat(v.HostPath)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Gid != 2000 || info.Mode()&fs.ModeSetgid == 0 {
			t.Errorf("volume %s has group %d and mode %v, want group 2000 handed on to new files", name, st.Gid, info.Mode())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, v := range mounted {
		if !v.Relabel {
			t.Errorf("volume %s is not the pod's to relabel", name)
		}
	}
	for name, want := range map[string]bool{"scratch": false, "ram": false, "conf": true, "creds": true, "self": true, "all": true} {
		if mounted[name].ReadOnly != want {
			t.Errorf("volume %s: ReadOnly is %v", name, mounted[name].ReadOnly)
		}
	}
	var st unix.Statfs_t
	for name, memory := range map[string]bool{"scratch": false, "ram": true, "conf": false, "creds": true, "self": true, "all": true} {
		if err := unix.Statfs(mounted[name].HostPath, &st); err != nil {
			t.Fatal(err)
		}
		if is, _ := isMount(mounted[name].HostPath); is != memory {
			t.Errorf("volume %s: in memory of its own: %v, want %v", name, is, memory)
		}
	}
	if err := unix.Statfs(mounted["ram"].HostPath, &st); err != nil || st.Blocks*uint64(st.Bsize) != 1<<20 {
		t.Errorf("ram holds %d bytes (%v), want its sizeLimit", st.Blocks*uint64(st.Bsize), err)
	}

	if err := m.Teardown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if left := mountsBelow(t, m.Root); len(left) > 0 {
		t.Errorf("mounts left: %q", left)
	}
	if uids, err := m.List(); err != nil || len(uids) != 0 {
		t.Errorf("List after teardown: %q, %v", uids, err)
	}
	if err := m.Teardown(t.Context(), pod.UID); err != nil {
		t.Errorf("second teardown: %v", err)
	}
}

func TestPreparingAgainKeepsWhatContainersWrote(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "securityContext: {fsGroup: 2000}\nvolumes: [{name: disk}, {name: ram, emptyDir: {medium: Memory}}]")
	for _, v := range prepare(t, m, pod) {
		if err := os.WriteFile(filepath.Join(v.HostPath, "kept"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(v.HostPath, 0o700); err != nil { // the container's own choice
			t.Fatal(err)
		}
	}
	again, err := New(m.cfg) // as after a restart of the agent
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range prepare(t, again, pod) {
		if got := tree(t, v.HostPath); got["kept"] != "-rw------- x" {
			t.Errorf("%s holds %v", name, got)
		}
		if info, _ := os.Stat(v.HostPath); info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v again", name, info.Mode())
		}
		if n := len(mountsBelow(t, v.HostPath)); n > 1 {
			t.Errorf("%s is mounted %d times", name, n)
		}
	}
	if uids, _ := again.List(); !slices.Equal(uids, []types.UID{pod.UID}) {
		t.Errorf("List = %q", uids)
	}
}

// A pod is deleted and its uid comes again with another volume under the same
// name, or a crash left a folder half made.
func TestWhatEarlierTriesLeftIsRemoved(t *testing.T) {
	m := newManager(t, &sources{})
	pod := podOf(t, "volumes: [{name: v, emptyDir: {medium: Memory}}, {name: w}]")
	prepare(t, m, pod)
	half := filepath.Join(m.volumes(pod.UID), "emptyDir", halfMade("v"))
	if err := os.MkdirAll(filepath.Join(half, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	host := t.TempDir()
	pod = podOf(t, "volumes: [{name: v, hostPath: {path: "+host+"}}]")
	if got := prepare(t, m, pod)["v"].HostPath; got != host {
		t.Errorf("hostPath is at %q", got)
	}
	found, err := m.found(pod.UID)
	if err != nil || len(found) > 0 {
		t.Errorf("left: %v, %v", found, err)
	}
	if left := mountsBelow(t, m.Root); len(left) > 0 {
		t.Errorf("mounts left: %q", left)
	}
}

func TestErrorsNameVolumeObjectAndKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	web := map[string]map[string]string{"web": {"mode": "fast"}}
	tests := map[string]struct {
		volumes string
		s       sources
		want    string // all parts must be in the error
	}{
		"a missing configmap":        {"volumes: [{name: v, configMap: {name: nope}}]", sources{}, `cannot prepare volume "v": configmap "nope" not found in namespace default; run its manifest together with the pod's`},
		"a missing key":              {"volumes: [{name: v, configMap: {name: web, items: [{key: k, path: p}]}}]", sources{configMaps: web}, `key "k" not found in configmap default/web`},
		"a missing secret":           {"volumes: [{name: v, secret: {secretName: nope}}]", sources{}, `secret "nope" not found`},
		"two problems at once":       {"volumes: [{name: v, secret: {secretName: a}}, {name: w, configMap: {name: b}}]", sources{}, `volume "v"|secret "a"|volume "w"|configmap "b"`},
		"two sources at once":        {"volumes: [{name: v, projected: {sources: [{secret: {name: a}}, {configMap: {name: b}}]}}]", sources{}, `secret "a" not found|configmap "b" not found`},
		"an unreachable API":         {"volumes: [{name: v, configMap: {name: web, optional: true}}]", sources{broken: errors.New("no route")}, "cannot get configmap default/web: no route"},
		"a token without a cluster":  {"volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", sources{}, "automountServiceAccountToken: false"},
		"a trust bundle":             {"volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: t, name: x}}]}}]", sources{}, "clusterTrustBundle"},
		"a claim":                    {"volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]", sources{}, "berth has no persistentVolumeClaim volumes; use emptyDir"},
		"a file for a folder":        {"volumes: [{name: v, hostPath: {path: " + file + ", type: Directory}}]", sources{}, "is a file, not a directory (type Directory)"},
		"a folder for a socket":      {"volumes: [{name: v, hostPath: {path: /, type: Socket}}]", sources{}, "is a directory, not a socket"},
		"a missing folder":           {"volumes: [{name: v, hostPath: {path: /nowhere/x, type: Directory}}]", sources{}, "does not exist; make it, or use type DirectoryOrCreate"},
		"a file in a missing folder": {"volumes: [{name: v, hostPath: {path: /nowhere/x, type: FileOrCreate}}]", sources{}, "its folder does not exist"},
		"a path below a file":        {"volumes: [{name: v, hostPath: {path: " + file + "/x, type: DirectoryOrCreate}}]", sources{}, "not a directory"},
		"a missing device":           {"volumes: [{name: v, hostPath: {path: /dev/nope, type: CharDevice}}]", sources{}, "must be a character device"},
		"a path with dots":           {"volumes: [{name: v, hostPath: {path: /a/../b}}]", sources{}, "contains '..'"},
		"huge pages not requested":   {"volumes: [{name: v, emptyDir: {medium: HugePages-2Mi}}]", sources{}, "request them"},
		"a name that is a path":      {"volumes: [{name: ../../../x}]", sources{}, `volume "../../../x": its name is no plain name`},
		"an unknown medium":          {"volumes: [{name: v, emptyDir: {medium: Tape}}]", sources{}, `emptyDir.medium "Tape" is unknown`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, &tt.s)
			_, err := m.Prepare(t.Context(), podOf(t, tt.volumes))
			if err == nil {
				t.Fatal("no error")
			}
			for part := range strings.SplitSeq(tt.want, "|") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "web_default") {
				t.Errorf("error %q names the pod, whose event and status it is", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %q", err)
			}
		})
	}
}

func TestHostPathsOfTheRightTypeAreTaken(t *testing.T) {
	dir := t.TempDir()
	m := newManager(t, &sources{})
	pod := podOf(t, `
volumes:
- {name: a, hostPath: {path: `+dir+`/made/deep, type: DirectoryOrCreate}}
- {name: b, hostPath: {path: `+dir+`/file, type: FileOrCreate}}
- {name: c, hostPath: {path: /dev/null, type: CharDevice}}
- {name: d, hostPath: {path: `+dir+`/untyped}}
- {name: e, hostPath: {path: `+dir+`, type: Directory}}
- {name: f, image: {reference: example.org/data:1}}
`)
	for range 2 {
		got := prepare(t, m, pod)
		want := map[string]Mounted{
			"a": {HostPath: dir + "/made/deep"}, "b": {HostPath: dir + "/file"}, "c": {HostPath: "/dev/null"},
			"d": {HostPath: dir + "/untyped"}, "e": {HostPath: dir}, "f": {Image: "example.org/data:1", ReadOnly: true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for path, folder := range map[string]bool{"made/deep": true, "file": false, "untyped": true} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.IsDir() != folder {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func TestOneCallAtATimeForAPod(t *testing.T) {
	m := newManager(t, &sources{})
	done, err := m.enter(t.Context(), "1234")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Teardown(ctx, "1234"); !errors.Is(err, context.Canceled) {
		t.Errorf("teardown beside another call: %v", err)
	}
	if err := m.Teardown(ctx, "other"); err != nil {
		t.Errorf("teardown of another pod: %v", err)
	}
	done()
	if err := m.Teardown(t.Context(), "1234"); err != nil {
		t.Error(err)
	}
	for _, bad := range []types.UID{"", ".", "..", "a/b"} {
		if err := m.RemovePod(t.Context(), bad); err == nil {
			t.Errorf("uid %q was taken", bad)
		}
	}
}

func TestHugePagesAreMounted(t *testing.T) {
	m := newManager(t, &sources{})
	if kinds, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(kinds), "hugetlbfs") {
		t.Skip("needs a kernel with hugetlbfs")
	}
	pod := podOf(t, "securityContext: {fsGroup: 2000}\nvolumes: [{name: v, emptyDir: {medium: HugePages}}]\ncontainers: [{name: app, resources: {requests: {hugepages-2Mi: 4Mi}}}]")
	dir := prepare(t, m, pod)["v"].HostPath
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	info, err := os.Stat(dir)
	must(t, err)
	if st.Type != unix.HUGETLBFS_MAGIC || st.Bsize != 2<<20 || info.Sys().(*syscall.Stat_t).Gid != 2000 {
		t.Errorf("type %x, pages of %d bytes, %v", st.Type, st.Bsize, info.Mode())
	}
	must(t, m.RemovePod(t.Context(), pod.UID))
}

func TestTerminationLogsAreForEverybodyAndKept(t *testing.T) {
	m := newManager(t, &sources{})
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	log, err := m.MakeTerminationLog("1234", "app", 2)
	must(t, err)
	must(t, os.WriteFile(log, []byte("last words"), 0o600))
	again, err := m.MakeTerminationLog("1234", "app", 2)
	must(t, err)
	if b, _ := os.ReadFile(again); string(b) != "last words" || again != m.TerminationLog("1234", "app", 2) {
		t.Errorf("%s holds %q", again, b)
	}
	if info, err := os.Stat(log); err != nil || info.Mode() != 0o666 {
		t.Errorf("%v, %v: the container's user can't write", info.Mode(), err)
	}
	if uids, err := m.List(); err != nil || len(uids) > 0 {
		t.Errorf("List = %q, %v: no volumes here", uids, err)
	}
	must(t, m.RemovePod(t.Context(), "1234"))
	if m.Exists("1234") {
		t.Error("the folder is left")
	}
}

// A pod with the usual volumes, prepared and taken away.
func BenchmarkPod(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: mounts")
	}
	s := &sources{configMaps: map[string]map[string]string{"web": {"mode": "fast"}}, secrets: map[string]map[string]string{"db": {"p": "x"}}}
	m, err := New(Config{Root: b.TempDir(), Sources: s})
	if err != nil {
		b.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1234"}}
	if err := yaml.Unmarshal([]byte("volumes: [{name: a}, {name: b, configMap: {name: web}}, {name: c, secret: {secretName: db}}]"), &pod.Spec); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.Prepare(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
		if err := m.RemovePod(b.Context(), pod.UID); err != nil {
			b.Fatal(err)
		}
	}
}

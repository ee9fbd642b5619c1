package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultRoot is the name of the root group when none is configured.
const DefaultRoot = "/berth"

const (
	podPrefix  = "pod"
	burstable  = "burstable"
	bestEffort = "besteffort"
)

// Config says where the groups are.
type Config struct {
	Root string       // of all groups, below the mounts of cgroups; default DefaultRoot
	Log  *slog.Logger // default: discard
}

// Tree is the groups of all pods below one root.
type Tree struct {
	root    string
	log     *slog.Logger
	layout  layout
	missing []string

	mu     sync.Mutex           // guards shares and the writing of their sum
	shares map[types.UID]uint64 // of Burstable pods set up by this process
}

// Pod is a pod's group.
type Pod struct {
	UID  types.UID
	QOS  corev1.PodQOSClass
	Path string // below the mounts, as runtimes want it: "/berth/burstable/podUID"
}

// Open finds out how cgroups are mounted, and creates the root group and those of
// the classes. It fails if they cannot be written to. Controllers that are
// missing are warned of once; limits that need them are left out.
func Open(cfg Config) (*Tree, error) {
	if cfg.Root == "" {
		cfg.Root = DefaultRoot
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Root == "/" || !filepath.IsAbs(cfg.Root) || filepath.Clean(cfg.Root) != cfg.Root {
		return nil, fmt.Errorf("cgroup: Config.Root is %q, want an absolute path of at least one name", cfg.Root)
	}
	l, err := detect(cfg.Root)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(unified); ok {
		moved, err := u.makeRoom()
		if err != nil {
			return nil, fmt.Errorf("cannot make limits possible below the cgroup that is mounted on %s: %w (start berth in a group of its own below it)", u.main("/"), explain(err))
		}
		if moved > 0 {
			cfg.Log.Info("moved the processes of this cgroup to one below it, so that pods can have limits", "processes", moved, "to", leaf)
		}
	}
	t := &Tree{root: cfg.Root, log: cfg.Log, layout: l, shares: map[types.UID]uint64{}}
	m, err := l.manager(t.root, &cgroups.Resources{SkipDevices: true})
	if err == nil {
		err = m.Apply(-1) // creates it and moves no process
	}
	if err != nil {
		return nil, explain(err)
	}
	if t.missing, err = l.missing(t.root); err != nil {
		return nil, err
	}
	for _, group := range []string{t.root, filepath.Join(t.root, burstable), filepath.Join(t.root, bestEffort)} {
		if err := t.apply(group, Resources{CPUShares: classShares(group)}); err != nil {
			return nil, explain(err)
		}
	}
	if len(t.missing) > 0 {
		t.log.Warn("cgroup controllers are missing, limits that need them do not hold", "controllers", t.missing, "layout", l.String())
	}
	return t, nil
}

// classShares: what asks for nothing gets next to nothing when others are busy;
// Burstable is set to the sum of its pods later.
func classShares(group string) uint64 {
	if b := filepath.Base(group); b == bestEffort || b == burstable {
		return minShares
	}
	return sharesPerCPU
}

// explain says what to do about a missing permission.
func explain(err error) error {
	var path *fs.PathError
	switch {
	case !errors.As(err, &path):
		return err
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("no write access to %s: it is mounted read-only; give the container a writable /sys/fs/cgroup: %w", path.Path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no write access to %s: run as root, or have the cgroup delegated to this user: %w", path.Path, err)
	}
	return err
}

// Layout names what was found: "v1", "v1 (hybrid)" or "v2".
func (t *Tree) Layout() string { return t.layout.String() }

// Missing lists controllers that limits need and that are not there.
func (t *Tree) Missing() []string { return slices.Clone(t.missing) }

// Path is where a pod's group is or would be.
func (t *Tree) Path(uid types.UID, qos corev1.PodQOSClass) string {
	name := podPrefix + string(uid)
	switch qos {
	case corev1.PodQOSBurstable:
		return filepath.Join(t.root, burstable, name)
	case corev1.PodQOSBestEffort:
		return filepath.Join(t.root, bestEffort, name)
	default:
		return filepath.Join(t.root, name)
	}
}

// Ensure creates the pod's group if it is not there, and sets its limits.
func (t *Tree) Ensure(uid types.UID, qos corev1.PodQOSClass, r Resources) (Pod, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/\n") {
		return Pod{}, fmt.Errorf("cannot create a cgroup for uid %q: it is not a file name", uid)
	}
	p := Pod{UID: uid, QOS: qos, Path: t.Path(uid, qos)}
	if err := t.apply(p.Path, r); err != nil {
		return Pod{}, fmt.Errorf("cannot set up cgroup %s: %w", p.Path, explain(err))
	}
	if qos == corev1.PodQOSBurstable {
		t.weigh(uid, max(r.CPUShares, minShares))
	}
	return p, nil
}

// weigh sets the shares of all Burstable pods together to the sum of theirs, as
// the kubelet does: else a thousand of them would weigh as little as one. Zero
// forgets the pod.
func (t *Tree) weigh(uid types.UID, shares uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if shares == 0 {
		delete(t.shares, uid)
	} else {
		t.shares[uid] = shares
	}
	var sum uint64
	for _, s := range t.shares {
		sum += s
	}
	group := filepath.Join(t.root, burstable)
	if err := t.apply(group, Resources{CPUShares: min(max(sum, minShares), maxShares)}); err != nil {
		t.log.Warn("cannot set the cpu shares of burstable pods", "err", err)
	}
}

// apply creates the group if it is not there, and sets its limits.
func (t *Tree) apply(group string, r Resources) error {
	limits := t.render(r)
	m, err := t.layout.manager(group, limits)
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil { // no process is moved
		return err
	}
	return m.Set(limits)
}

// render translates to the library's terms, where -1 is no limit and 0 leaves
// things as they are. It leaves out what needs a missing controller.
func (t *Tree) render(r Resources) *cgroups.Resources {
	limit := func(v int64) int64 {
		if v == 0 {
			return -1
		}
		return v
	}
	out := &cgroups.Resources{SkipDevices: true}
	if t.has("cpu") {
		out.CpuShares = max(r.CPUShares, minShares)
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(out.CpuShares)
		out.CpuPeriod, out.CpuQuota = periodMicros, limit(r.CPUQuotaMicros)
	}
	if t.has("memory") {
		out.Memory = limit(r.MemoryBytes)
	}
	if t.has("pids") {
		pids := limit(r.Pids)
		out.PidsLimit = &pids
	}
	for size, bytes := range r.HugePages {
		if name, ok := hugePageNames()[size]; ok && t.has("hugetlb") {
			out.HugetlbLimit = append(out.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: name, Limit: uint64(bytes)})
		} else if bytes > 0 {
			t.log.Warn("huge pages are not limited, the kernel cannot", "pageBytes", size)
		}
	}
	return out
}

func (t *Tree) has(controller string) bool {
	if controller == "hugetlb" {
		return t.layout.hasHugePages()
	}
	return !slices.Contains(t.missing, controller)
}

// hugePageNames gives the kernel's names, like "2MB", by bytes.
func hugePageNames() map[int64]string {
	names := map[int64]string{}
	for _, n := range cgroups.HugePageSizes() {
		digits := strings.TrimRight(n, "KMGB")
		size, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			continue
		}
		switch n[len(digits):] {
		case "KB":
			size <<= 10
		case "MB":
			size <<= 20
		case "GB":
			size <<= 30
		}
		names[size] = n
	}
	return names
}

// List returns the pods that have a group, also one that is only half there.
func (t *Tree) List() ([]Pod, error) {
	found := map[string]Pod{}
	for qos, class := range map[corev1.PodQOSClass]string{corev1.PodQOSGuaranteed: "", corev1.PodQOSBurstable: burstable, corev1.PodQOSBestEffort: bestEffort} {
		group := filepath.Join(t.root, class)
		for _, dir := range t.layout.dirs(group) {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("cannot list cgroups: %w", err)
			}
			for _, e := range entries {
				if uid, ok := strings.CutPrefix(e.Name(), podPrefix); ok && e.IsDir() && uid != "" {
					path := filepath.Join(group, e.Name())
					found[path] = Pod{UID: types.UID(uid), QOS: qos, Path: path}
				}
			}
		}
	}
	pods := make([]Pod, 0, len(found))
	for _, p := range found {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b Pod) int { return strings.Compare(a.Path, b.Path) })
	return pods, nil
}

// ignoreGone drops errors that say a group does not exist (any more).
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// valueOf finds a value in lines of "key value"; 0 if it is not there.
func valueOf(text, key string) uint64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key+" "); ok {
			v, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64) // the kernel's own number
			return v
		}
	}
	return 0
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/admission"
	"github.com/berth-run/berth/internal/db"
	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/hooks"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/podruntime/remote"
	"github.com/berth-run/berth/internal/podstore"
	"github.com/berth-run/berth/internal/podworker"
	"github.com/berth-run/berth/internal/probe"
	"github.com/berth-run/berth/internal/probetiming"
	"github.com/berth-run/berth/internal/status"
	"github.com/berth-run/berth/internal/volume"
)

// runtimeName is the scheme of container ids in statuses.
const runtimeName = "berth"

// Agent runs pods on this machine. Use: New, Run for as long as anything is
// called, Close. It is safe for concurrent use.
type Agent struct {
	*Runtime

	db      *db.DB
	volumes *volume.Manager
	runtime *remote.Runtime
	probes  *probe.Manager
	status  *status.Manager
	pods    *podstore.Store
	workers *podworker.Workers
	users   *userRanges
	objects *objects
	feed    *feed
}

// New opens everything an agent needs and takes over what an earlier agent of
// the same root left running. It starts nothing of its own but the shim.
func New(ctx context.Context, cfg Config) (_ *Agent, err error) {
	r, err := claim(ctx, cfg, home.Pods)
	if err != nil {
		return nil, err
	}
	a := &Agent{Runtime: r, feed: newFeed()}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.closers.close())
		}
	}()
	damage := a.openDatabase()
	if damage != nil && !errors.Is(damage, db.ErrDamaged) {
		return nil, damage
	}
	if err := a.chooseHandlers(); err != nil {
		return nil, err
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	if damage != nil {
		if err := a.beginAnew(ctx, damage); err != nil {
			return nil, err
		}
	}
	if err := a.readState(); err != nil {
		return nil, err
	}
	if err := a.openPods(ctx); err != nil {
		return nil, err
	}
	return a, a.openHeart()
}

// readState reads what the database has of earlier agents.
func (a *Agent) readState() (err error) {
	if err := a.choosePodPids(); err != nil {
		return err
	}
	if a.users, err = newUserRanges(a.db); err != nil {
		return err
	}
	a.objects, err = newObjects(a.db)
	return err
}

// openPods makes what turns pods into sandboxes and containers.
func (a *Agent) openPods(ctx context.Context) (err error) {
	if a.cfg.DemoBinary != "" {
		if _, err := a.images.DemoImage(ctx, a.cfg.DemoBinary); err != nil {
			a.log.Warn("cannot make the demo image", "err", shortDemoError(err))
		}
	}
	a.volumes, err = volume.New(volume.Config{
		Root: a.cfg.home.Root, Sources: a.objects, Allocatable: a.host.allocatable, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.runtime, err = remote.New(remote.Config{
		Service: a.cri, Images: a.cri, Volumes: a.volumes, Sources: a.objects, Facts: a.podFacts,
		HostIPs: func() []string { return a.host.ips }, Cgroups: podCgroups{tree: a.cgroups, pids: max(a.cfg.PodPids, 0)}, Puller: puller{a.images}, MakeLocal: demoMaker(a.images, a.cfg.DemoBinary),
		Pulls: a.db, Progress: a.pulling, Recorder: a.feed, RecursiveReadOnly: a.host.rro, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.forgetImages(ctx)
	return nil
}

// openHeart makes the parts that drive pods.
func (a *Agent) openHeart() (err error) {
	a.probes, err = probe.New(probe.Config{
		Exec:    a.runtime,
		Changed: func(r probe.Result) { a.workers.Probed(r.PodUID, probedOf(r)) },
		Checked: a.checked,
		Timing:  probeTiming,
	})
	if err != nil {
		return err
	}
	if a.status, err = status.New(status.Config{Log: a.log}); err != nil {
		return err
	}
	histories := podworker.NewHistories(a.db)
	a.pods, err = podstore.New(podstore.Config{Records: a.db, Ended: histories.Terminal, Admit: admission.HostPorts, Log: a.log})
	if err != nil {
		return err
	}
	if err := a.feed.past.load(a.db, a.Known); err != nil {
		return err
	}
	facts := lifecycle.Facts{RuntimeName: runtimeName, HostIPs: a.host.ips, RecursiveReadOnly: a.host.rro}
	a.workers, err = podworker.NewWorkers(podworker.Config{
		Runtime: a.runtime, Records: histories, Hooks: hooks.New(a.runtime, a.log),
		Probes: a.probes, Status: reporter{a}, Recorder: a.feed,
		Facts: func(*corev1.Pod) lifecycle.Facts { return facts },
		Log:   a.log,
	})
	return err
}

// podFacts are what the runtime has to know of the node for a pod.
func (a *Agent) podFacts(pod *corev1.Pod) podconfig.Facts {
	return podconfig.Facts{
		NodeName: a.host.name, LogRoot: a.cfg.home.Logs(), SeccompRoot: a.cfg.home.Seccomp(), HostsFile: a.host.hostsFile,
		HostDNS: readResolvConf(resolvConf), UpstreamDNS: readResolvConf(upstreamResolvConf),
		UserNamespace: a.users.mapping(pod), SeccompDefault: true, MemoryBytes: a.host.memoryBytes,
		Allocatable: a.host.allocatable, HugePageSizes: a.host.hugePageSizes,
		CgroupV2: a.host.cgroupV2, SwapAccounting: a.host.swap,
	}
}

// Run drives pods until ctx ends. Pods then run on without an agent; to stop
// them, Delete them and wait for Gone first.
func (a *Agent) Run(ctx context.Context) error {
	// The database and the runtime go on while workers detach.
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	var under errgroup.Group
	for _, run := range []func(context.Context) error{a.db.Run, a.images.Run, a.cri.Run, a.keepNetwork, a.watchShims, a.status.Run, a.tellStatuses, a.keepEvents, a.collectImages, a.rest} {
		under.Go(func() error { return ignoreCancel(run(base)) })
	}
	heart, heartCtx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		a.probes.Run, a.workers.Run, a.follow,
		func(ctx context.Context) error { return a.runtime.Events(ctx, a.workers.Poke) },
	} {
		heart.Go(func() error { return ignoreCancel(run(heartCtx)) })
	}
	err := heart.Wait()
	stopBase()
	err = errors.Join(err, under.Wait())
	a.feed.past.save(a.db) // for Close to write
	return err
}

// follow hands what is desired to the workers, and ends what nobody desires.
func (a *Agent) follow(ctx context.Context) error {
	sub := a.pods.Subscribe()
	defer sub.Close()
	if err := a.endOrphans(ctx); err != nil {
		a.log.Warn("cannot look for pods that nobody knows", "err", err)
	}
	for {
		for _, uid := range sub.Changed() {
			if d, ok := a.pods.Get(uid); ok {
				a.workers.Update(podworker.Desired(d))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sub.C:
		}
	}
}

// endOrphans ends pods that the node holds something of and nobody knows.
func (a *Agent) endOrphans(ctx context.Context) error {
	found, err := a.runtime.Pods(ctx)
	if err != nil {
		return err
	}
	for _, ref := range found {
		if _, known := a.pods.Get(ref.UID); known {
			continue
		}
		a.log.Warn("a pod is on this node that nobody knows, it is removed", "uid", ref.UID, "name", ref.Name)
		a.workers.Update(podworker.Orphan(ref, time.Now(), corev1.DefaultTerminationGracePeriodSeconds*time.Second))
	}
	return nil
}

// reporter takes statuses from the workers.
type reporter struct{ a *Agent }

func (r reporter) Set(pod *corev1.Pod, s corev1.PodStatus) { r.a.status.Set(pod, s) }

func (r reporter) Finished(pod *corev1.Pod) {
	r.a.probes.Forget(pod.UID)
	r.a.users.free(pod.UID)
	r.a.pods.Forget(pod.UID)
	r.a.status.Finished(pod)
}

// tellStatuses tells the readers of the feed each version of each status.
func (a *Agent) tellStatuses(ctx context.Context) error {
	for u := range a.status.Subscribe(ctx) {
		ref := Ref{Namespace: u.Ref.Namespace, Name: u.Ref.Name, UID: u.Ref.UID}
		if u.Removed {
			a.feed.put(Update{Kind: GoneUpdate, Pod: ref, Deleted: a.deleted(ref)})
		} else {
			a.feed.put(Update{Kind: StatusUpdate, Pod: ref, Status: u.Status, Deleted: a.deleted(ref)})
		}
	}
	return nil
}

// deleted says how the end of a pod was asked for.
func (a *Agent) deleted(ref Ref) Deleted {
	if d, ok := a.pods.Get(ref.UID); ok && d.Pod.DeletionTimestamp == nil {
		return ""
	}
	if uid, ok := a.podUID(ref.Namespace, ref.Name); ok && uid != ref.UID {
		return Replaced
	}
	return Removed
}

func (a *Agent) pulling(p remote.Progress) {
	a.feed.put(Update{Kind: ProgressUpdate, Pod: refOf(p.Pod), Progress: &Progress{
		Container: p.Container, Image: p.Image, Done: p.Done, Total: p.Total,
	}})
}

// checked makes an event of a check that failed.
func (a *Agent) checked(o probe.Observation) {
	if o.Check.OK || o.Check.Early {
		return
	}
	a.feed.put(Update{Kind: EventUpdate, Pod: refOf(o.Pod), Event: &Event{
		Type: corev1.EventTypeWarning, Reason: "Unhealthy", Container: o.Probe.Container,
		Message: fmt.Sprintf("%s probe failed: %s", probeName(o.Probe.Key.Kind), o.Check.Output),
	}})
}

// probeName is how events name a kind of probe.
func probeName(k lifecycle.ProbeKind) string {
	name := string(k)
	return strings.ToUpper(name[:1]) + name[1:]
}

func probedOf(r probe.Result) lifecycle.Probed {
	return lifecycle.Probed{Key: r.Key, Outcome: r.Outcome, Message: r.Message, At: r.At}
}

func probeTiming(pod *corev1.Pod, container string, kind lifecycle.ProbeKind, spec *corev1.Probe) probe.Timing {
	every, limit, delay := probetiming.ProbeTiming(pod, container, probetiming.Kind(kind))
	if every == 0 {
		return probe.SpecTiming(spec)
	}
	return probe.Timing{Period: every, Timeout: limit, InitialDelay: delay}
}

// podUID finds a pod by name: the one that is not ending, else the youngest.
func (a *Agent) podUID(namespace, name string) (types.UID, bool) {
	var found types.UID
	for _, d := range append(a.pods.List(), a.pods.Leftover()...) {
		if d.Pod.Namespace == namespace && d.Pod.Name == name {
			found = d.Pod.UID // those that are ending come first
		}
	}
	return found, found != ""
}

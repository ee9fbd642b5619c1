package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// idle is a shell that waits and exits at once on SIGTERM.
const idle = `trap "exit 0" TERM; while :; do sleep 100000 & wait; done`

// trapSet is how long a shell may take to set its trap.
const trapSet = 300 * time.Millisecond

// patience bounds each wait, so that a node that hangs is an error.
const patience = 5 * time.Minute

type bench struct {
	options
	node  node
	procs []proc
}

func (b *bench) pod(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "nodebench"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault,
			TerminationGracePeriodSeconds: ptr.To(int64(1)), AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "c", Image: b.image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script},
				TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
		},
	}
}

// withVolume gives the pod a folder of the host: where a pod has any volume, the
// kubelet waits 0.3 s longer.
func (b *bench) withVolume(p *corev1.Pod) *corev1.Pod {
	p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: b.scratch, Type: ptr.To(corev1.HostPathUnset)}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "s", MountPath: "/scratch"}}
	return p
}

// until reads changes until ok says so.
func until(w <-chan change, ok func(change) bool) error {
	limit := time.After(patience)
	for {
		select {
		case c, open := <-w:
			if !open {
				return errors.New("the watch was closed")
			}
			if ok(c) {
				return nil
			}
		case <-limit:
			return fmt.Errorf("nothing for %s", patience)
		}
	}
}

// all is until with n pods, each of which must come to satisfy ok.
func all(w <-chan change, n int, ok func(change) bool) error {
	seen := map[string]bool{}
	return until(w, func(c change) bool {
		if ok(c) {
			seen[c.name] = true
		}
		return len(seen) == n
	})
}

func ready(c change) bool { return c.ready }
func gone(c change) bool  { return c.gone }

func (b *bench) start(ctx context.Context) (any, error) { return b.oneByOne(ctx, b.withVolume) }
func (b *bench) bare(ctx context.Context) (any, error) {
	return b.oneByOne(ctx, func(p *corev1.Pod) *corev1.Pod { return p })
}

// oneByOne starts and stops pods one after the other.
func (b *bench) oneByOne(ctx context.Context, shape func(*corev1.Pod) *corev1.Pod) (any, error) {
	var up, down []time.Duration
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.node.watch(ctx)
	if err != nil {
		return nil, err
	}
	for i := range b.samples {
		name := fmt.Sprintf("one-%d", i)
		is := func(f func(change) bool) func(change) bool {
			return func(c change) bool { return c.name == name && f(c) }
		}
		began := time.Now()
		if err := errors.Join(b.node.create(ctx, shape(b.pod(name, idle))), until(w, is(ready))); err != nil {
			return nil, err
		}
		up = append(up, time.Since(began))
		// A shell that was started a moment ago has not set its trap yet, and
		// the first process of a container ignores what it does not handle.
		time.Sleep(trapSet)
		began = time.Now()
		if err := errors.Join(b.node.delete(ctx, name), until(w, is(gone))); err != nil {
			return nil, err
		}
		down = append(down, time.Since(began))
	}
	return map[string]any{"start_to_ready_s": stats(up), "stop_to_gone_s": stats(down)}, nil
}

// atOnce starts many pods at once and leaves them.
func (b *bench) atOnce(ctx context.Context, w <-chan change, pod func(name string) *corev1.Pod) (time.Duration, error) {
	began := time.Now()
	for i := range b.burst {
		if err := b.node.create(ctx, pod(fmt.Sprintf("burst-%d", i))); err != nil {
			return 0, err
		}
	}
	err := all(w, b.burst, ready)
	return time.Since(began), err
}

func (b *bench) stopAll(ctx context.Context, w <-chan change) (time.Duration, error) {
	began := time.Now()
	for i := range b.burst {
		if err := b.node.delete(ctx, fmt.Sprintf("burst-%d", i)); err != nil {
			return 0, err
		}
	}
	err := all(w, b.burst, gone)
	return time.Since(began), err
}

func (b *bench) burstTest(ctx context.Context) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.node.watch(ctx)
	if err != nil {
		return nil, err
	}
	up, err := b.atOnce(ctx, w, func(name string) *corev1.Pod { return b.withVolume(b.pod(name, idle)) })
	if err != nil {
		return nil, err
	}
	foot, err := footprint(b.procs, b.window)
	if err != nil {
		return nil, err
	}
	down, err := b.stopAll(ctx, w)
	return map[string]any{"pods": b.burst, "all_ready_s": seconds(up), "idle": foot, "all_gone_s": seconds(down)}, err
}

// restartTest measures from a process's exit to its successor's first act, by
// the times of two files in the shared folder.
func (b *bench) restartTest(ctx context.Context) (any, error) {
	var gaps []time.Duration
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.node.watch(ctx)
	if err != nil {
		return nil, err
	}
	for i := range b.samples / 2 {
		name := fmt.Sprintf("again-%d", i)
		died, rose := filepath.Join(b.scratch, name), filepath.Join(b.scratch, name+".again")
		script := fmt.Sprintf(`f=/scratch/%s; if [ ! -f $f ]; then sleep 1; : > $f; exit 1; fi; : > $f.again; %s`, name, idle)
		if err := b.node.create(ctx, b.withVolume(b.pod(name, script))); err != nil {
			return nil, err
		}
		err := until(w, func(c change) bool {
			return c.name == name && c.status != nil && len(c.status.ContainerStatuses) > 0 &&
				c.status.ContainerStatuses[0].RestartCount == 1 && c.ready
		})
		if err != nil {
			return nil, err
		}
		second, err := appears(rose)
		if err != nil {
			return nil, err
		}
		first, err := os.Stat(died)
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, second.ModTime().Sub(first.ModTime()))
		err = errors.Join(os.Remove(died), os.Remove(rose), b.node.delete(ctx, name),
			until(w, func(c change) bool { return c.name == name && c.gone }))
		if err != nil {
			return nil, err
		}
	}
	return map[string]any{"exit_to_restart_s": stats(gaps)}, nil
}

// appears waits for a file: a container runs a little before its process acts.
func appears(path string) (os.FileInfo, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		info, err := os.Stat(path)
		if err == nil || time.Since(began) > patience {
			return info, err
		}
	}
}

// probes measures the cost of two http probes a second in each of many pods.
func (b *bench) probes(ctx context.Context) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.node.watch(ctx)
	if err != nil {
		return nil, err
	}
	_, err = b.atOnce(ctx, w, func(name string) *corev1.Pod {
		p := b.pod(name, `mkdir -p /www; echo ok > /www/index.html; exec httpd -f -p 8080 -h /www`)
		probe := &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 30, SuccessThreshold: 1, TimeoutSeconds: 1,
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/index.html", Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}}}
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = probe, probe.DeepCopy()
		return p
	})
	if err != nil {
		return nil, err
	}
	foot, err := footprint(b.procs, b.window)
	if err != nil {
		return nil, err
	}
	_, err = b.stopAll(ctx, w)
	return map[string]any{"probes_per_s": 2 * b.burst, "cost": foot}, err
}

// comeback kills the agent under many pods and measures until it reports the
// next change: the crash of a container that happens right after.
func (b *bench) comeback(ctx context.Context) (any, error) {
	if b.restart == "" {
		return nil, errors.New("name -restart-agent")
	}
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.node.watch(first)
	if err != nil {
		return nil, err
	}
	_, err = b.atOnce(ctx, w, func(name string) *corev1.Pod {
		script := fmt.Sprintf(`while [ ! -f /scratch/%s.die ]; do sleep 0.02; done; rm /scratch/%s.die; exit 1`, name, name)
		if name != "burst-0" {
			script = idle
		}
		return b.withVolume(b.pod(name, script))
	})
	if err != nil {
		return nil, err
	}
	cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, "sh", "-c", b.restart)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cannot restart the agent: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.scratch, "burst-0.die"), nil, 0o666); err != nil { //nolint:gosec // shared with pods
		return nil, err
	}
	second, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		if w, err = b.node.watch(second); err == nil {
			break
		}
		if time.Since(began) > patience {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	err = until(w, func(c change) bool {
		return c.name == "burst-0" && c.status != nil && len(c.status.ContainerStatuses) > 0 && c.status.ContainerStatuses[0].RestartCount > 0
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	_, err = b.stopAll(ctx, w)
	return map[string]any{"pods": b.burst, "kill_to_next_change_s": seconds(took)}, err
}

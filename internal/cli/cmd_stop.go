package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

type endOptions struct {
	namespace string
	all       bool
	grace     time.Duration
	force     bool
}

// seconds is the grace period that was asked for; nil: the pod's own.
func (o endOptions) seconds(cmd *cobra.Command) (*int64, error) {
	if !cmd.Flags().Changed("grace") {
		return nil, nil //nolint:nilnil // nil means the pod's own
	}
	if o.grace < 0 {
		return nil, usageError("--grace is %s, want a time such as 5s, or 0s to kill at once", o.grace)
	}
	n := int64((o.grace + time.Second - 1) / time.Second)
	return &n, nil
}

func checkTargets(args []string, all bool) error {
	switch {
	case all && len(args) > 0:
		return usageError("--all means all pods: don't name any")
	case !all && len(args) == 0:
		return usageError("say which pods, or --all")
	}
	return nil
}

func stopCommand(a *app) *cobra.Command {
	var o endOptions
	c := &cobra.Command{
		Use:   "stop POD...",
		Short: "Stop pods; they stay listed, with their logs",
		Long: `Stop pods in order, sidecars last, each container with its stop signal and then,
when the grace period is over, by force. Stopped pods stay in berth ps, with
their logs, until berth rm.`,
		Example: `  berth stop web
  berth stop --all --grace 2s`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTargets(args, o.all); err != nil {
				return err
			}
			grace, err := o.seconds(cmd)
			if err != nil {
				return err
			}
			return a.end(cmd.Context(), args, o, "stopped", isTerminal, func(ctx context.Context, s *session, p *corev1.Pod) error {
				_, err := s.client.Stop(ctx, p.Namespace, p.Name, grace)
				return err
			})
		},
	}
	endFlags(c, &o)
	return c
}

func rmCommand(a *app) *cobra.Command {
	var o endOptions
	c := &cobra.Command{
		Use:   "rm POD...",
		Short: "Remove pods that have ended, with their logs and volumes",
		Long: `Remove pods that have ended, with their logs and their emptyDir volumes.

A pod that still runs is not removed, unless --force says so: then it is stopped
first, within its grace period or that of --grace.`,
		Example: `  berth rm job
  berth rm --all
  berth rm --force --grace 0s web        # kill it and remove it`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTargets(args, o.all); err != nil {
				return err
			}
			grace, err := o.seconds(cmd)
			if err != nil {
				return err
			}
			never := func(*corev1.PodStatus) bool { return false }
			return a.end(cmd.Context(), args, o, "removed", never, func(ctx context.Context, s *session, p *corev1.Pod) error {
				if !o.force && !isTerminal(&p.Status) && p.DeletionTimestamp == nil {
					if o.all {
						return errSkip
					}
					return fmt.Errorf("pod %s has not ended: stop it first, or say --force", podName(p.Namespace, p.Name))
				}
				return s.client.DeleteRef(ctx, agent.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, grace)
			})
		},
	}
	endFlags(c, &o)
	c.Flags().BoolVarP(&o.force, "force", "f", false, "also pods that run: stop them first")
	return c
}

func endFlags(c *cobra.Command, o *endOptions) {
	c.Flags().StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pods")
	c.Flags().BoolVar(&o.all, "all", false, "all pods, or all of the namespace")
	c.Flags().DurationVar(&o.grace, "grace", 0, "time from stop signal to kill, if shorter than the pod's own")
}

// errSkip says that a pod is not meant.
var errSkip = errors.New("skip")

// end does something to pods that ends them, and waits until they are over as
// asked, or gone.
func (a *app) end(ctx context.Context, args []string, o endOptions, done string, over func(*corev1.PodStatus) bool, do func(context.Context, *session, *corev1.Pod) error) (err error) {
	s, err := a.connectSettled(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pods, err := s.client.Pods(ctx)
	if err != nil {
		return err
	}
	if pods, err = choosePods(pods, args, o.namespace); err != nil {
		return err
	}
	w := newEndWatch(over)
	watching, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() { cancel(); group.Wait() }()
	begun := make(chan struct{})
	var once sync.Once
	stands := func() { once.Do(func() { close(begun) }) }
	group.Go(func() {
		err := s.client.Watch(watching, stands, w.update)
		w.fail(err)
		stands()
	})
	<-begun
	// All are asked first, so that they end side by side.
	var errs []error
	var asked []*corev1.Pod
	for i := range pods {
		switch err := do(ctx, s, &pods[i]); {
		case errors.Is(err, errSkip):
		case err != nil:
			errs = append(errs, err)
		default:
			asked = append(asked, &pods[i])
		}
	}
	for _, p := range asked {
		if err := w.wait(ctx, p.UID); err != nil {
			return errors.Join(append(errs, fmt.Errorf("cannot wait for the end of pod %s: %w", podName(p.Namespace, p.Name), err))...)
		}
		fmt.Fprintf(a.out, "%s %s\n", podName(p.Namespace, p.Name), done)
	}
	return errors.Join(errs...)
}

// endWatch knows which pods are over. Safe for concurrent use.
type endWatch struct {
	over func(*corev1.PodStatus) bool

	mu      sync.Mutex
	ended   map[types.UID]bool
	err     error
	changed chan struct{} // closed and replaced at each change
}

func newEndWatch(over func(*corev1.PodStatus) bool) *endWatch {
	return &endWatch{over: over, ended: make(map[types.UID]bool), changed: make(chan struct{})}
}

func (w *endWatch) update(u agent.Update, _ int) error {
	if u.Kind == agent.GoneUpdate || u.Status != nil && w.over(u.Status) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended[u.Pod.UID] = true
		w.tell()
	}
	return nil
}

func (w *endWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.tell()
}

func (w *endWatch) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait returns when the pod is over.
func (w *endWatch) wait(ctx context.Context, uid types.UID) error {
	for {
		w.mu.Lock()
		ended, err, changed := w.ended[uid], w.err, w.changed
		w.mu.Unlock()
		switch {
		case ended:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

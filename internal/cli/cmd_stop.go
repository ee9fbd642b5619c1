package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
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
their logs, until berth rm: as succeeded if all their main containers ended with
exit code 0, else as failed.`,
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
					if stopping(p) {
						return fmt.Errorf("pod %s is being stopped and has not ended yet: try again later, or say --force", podName(p.Namespace, p.Name))
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
// asked, or gone. It goes on with another agent when the one that it asked leaves
// meanwhile, as that of a run does which has nothing more to follow.
func (a *app) end(ctx context.Context, args []string, o endOptions, done string, over func(*corev1.PodStatus) bool, do func(context.Context, *session, *corev1.Pod) error) (err error) {
	s, err := a.connectSettled(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	ctx, stop := untilSignal(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pods, err := s.client.Pods(ctx)
	for deadline := time.Now().Add(handOver); errors.Is(err, nodeapi.ErrCut) && time.Now().Before(deadline); {
		if s, err = a.reconnect(ctx, s); err != nil {
			return err
		}
		pods, err = s.client.Pods(ctx)
	}
	if err != nil {
		return err
	}
	if pods, err = choosePods(pods, args, o.namespace); err != nil {
		return err
	}
	e := &ending{pods: pods, do: do, w: newEndWatch(over), out: a.out, done: done, asked: make(map[types.UID]bool)}
	for deadline := time.Now().Add(handOver); ; {
		err := e.with(ctx, s)
		if err != nil && ctx.Err() != nil {
			return &exitError{code: signalCode(ctx), cause: errors.Join(append(e.errs,
				errors.New("interrupted: pods that were asked to end go on ending (berth ps shows them)"))...)}
		}
		if !errors.Is(err, nodeapi.ErrCut) || time.Now().After(deadline) {
			return errors.Join(append(e.errs, err)...)
		}
		if s, err = a.reconnect(ctx, s); errors.Is(err, errRemoved) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// reconnect leaves an agent that went away for the next. The session it returns
// can be closed in any case.
func (a *app) reconnect(ctx context.Context, s *session) (*session, error) {
	a.begun = true
	if s.own != nil {
		return s, errors.New("the agent in this process does not answer")
	}
	s.client.Close()
	next, err := a.connectSettled(ctx)
	if err != nil {
		return s, err
	}
	return next, nil
}

// ending ends pods, through one agent after another.
type ending struct {
	pods []corev1.Pod // those that are still to end
	do   func(context.Context, *session, *corev1.Pod) error
	w    *endWatch
	out  io.Writer
	done string

	asked map[types.UID]bool
	errs  []error
}

// with goes on with the agent of s. After nodeapi.ErrCut there is more to do.
func (e *ending) with(ctx context.Context, s *session) error {
	watching, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() { cancel(); group.Wait() }()
	begun := make(chan struct{})
	var once sync.Once
	stands := func() { once.Do(func() { close(begun) }) }
	e.w.fail(nil)
	group.Go(func() {
		e.w.fail(s.client.Watch(watching, stands, e.w.update))
		stands()
	})
	<-begun
	group.Go(func() {
		if err := s.client.AwaitTrouble(watching); watching.Err() == nil {
			e.w.fail(err)
		}
	})
	if len(e.asked) > 0 {
		// What has gone between two agents is not told.
		left, err := s.client.Pods(ctx)
		if err != nil {
			return err
		}
		for _, p := range e.pods {
			if !slices.ContainsFunc(left, func(q corev1.Pod) bool { return q.UID == p.UID }) {
				e.w.gone(p.UID)
			}
		}
		clear(e.asked) // the former may not have had room to record it
	}
	// All are asked first, so that they end side by side.
	for i := 0; i < len(e.pods); {
		p := &e.pods[i]
		if !e.asked[p.UID] && !e.w.isOver(p.UID) {
			switch err := e.do(ctx, s, p); {
			case errors.Is(err, nodeapi.ErrCut):
				e.asked[p.UID] = false // or it was: asking once more does no harm
				return err
			case errors.Is(err, nodeapi.ErrMute): // nor would it for the others
				return fmt.Errorf("cannot ask for the end of pod %s: %w", podName(p.Namespace, p.Name), err)
			case err != nil:
				if !errors.Is(err, errSkip) {
					e.errs = append(e.errs, err)
				}
				e.pods = slices.Delete(e.pods, i, i+1)
				continue
			}
			e.asked[p.UID] = true
		}
		i++
	}
	for len(e.pods) > 0 {
		p := &e.pods[0]
		if err := e.w.wait(ctx, p.UID); err != nil {
			return fmt.Errorf("cannot wait for the end of pod %s: %w", podName(p.Namespace, p.Name), err)
		}
		switch err := s.client.Keep(ctx); {
		case err == nil:
			fmt.Fprintf(e.out, "%s %s\n", podName(p.Namespace, p.Name), e.done)
		case errors.Is(err, nodeapi.ErrCut), errors.Is(err, nodeapi.ErrMute), ctx.Err() != nil:
			return fmt.Errorf("cannot wait for the end of pod %s: %w", podName(p.Namespace, p.Name), err)
		default:
			e.errs = append(e.errs, fmt.Errorf("pod %s has ended, but that can't be recorded, and it may start again when berth ends before there is room: %w",
				podName(p.Namespace, p.Name), err))
		}
		e.pods = e.pods[1:]
	}
	return nil
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
		w.gone(u.Pod.UID)
	}
	return nil
}

func (w *endWatch) gone(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[uid] = true
	w.tell()
}

func (w *endWatch) isOver(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[uid]
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

package nodeapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/cri/logs"
	"github.com/berth-run/berth/internal/podlogs"
)

// containerLogs sends the log of one attempt of a container, as the kubelet does:
// follow, tailLines, sinceSeconds, sinceTime, timestamps, previous, limitBytes.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) error {
	pod, err := s.pod(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		return err
	}
	status := containerStatus(&pod.Status, r.PathValue("container"))
	if status == nil {
		if !hasContainer(&pod.Spec, r.PathValue("container")) {
			return fmt.Errorf("%w: pod %s/%s has no container %s", agent.ErrNoContainer, pod.Namespace, pod.Name, r.PathValue("container"))
		}
		return badRequest{fmt.Errorf("container %s of pod %s/%s has not started", r.PathValue("container"), pod.Namespace, pod.Name)}
	}
	q, err := parseLogQuery(r)
	if err != nil {
		return err
	}
	dir, _ := s.cfg.Agent.LogDir(pod.UID, status.Name)
	attempt, err := attemptWanted(status, dir, q.previous)
	if err != nil {
		return err
	}
	opts := logs.Options{Tail: q.tail, Since: q.since, Follow: q.follow}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var ended errgroup.Group
	if q.follow && !q.previous {
		over := make(chan struct{})
		opts.Ended = over
		ended.Go(func() error {
			defer close(over)
			s.attemptEnds(ctx, pod.UID, status.Name, attempt)
			return nil
		})
	} else {
		opts.Follow = false
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := flushing(w)
	if q.follow {
		_ = http.NewResponseController(w).Flush()
	} else {
		out = w
	}
	format := logs.Format{Timestamps: q.timestamps, LimitBytes: q.limit}
	err = logs.Copy(ctx, filepath.Join(dir, strconv.Itoa(attempt)+".log"), opts, format, out, out)
	cancel()
	return errors.Join(err, ended.Wait())
}

type flushWriter struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func flushing(w http.ResponseWriter) io.Writer {
	return flushWriter{w, http.NewResponseController(w)}
}

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}

// attemptWanted is the number in the name of the log file that is asked for.
func attemptWanted(status *corev1.ContainerStatus, dir string, previous bool) (int, error) {
	attempts, err := podlogs.Attempts(dir)
	if err != nil {
		return 0, err
	}
	n := len(attempts)
	switch {
	case previous && n < 2:
		return 0, badRequest{fmt.Errorf("container %s has no previous log: it was not restarted", status.Name)}
	case previous:
		return attempts[n-2], nil
	case n == 0:
		return 0, badRequest{fmt.Errorf("container %s has not started", status.Name)}
	}
	return attempts[n-1], nil
}

// attemptEnds returns when that attempt of a container has ended, or ctx has.
func (s *Server) attemptEnds(ctx context.Context, uid types.UID, container string, attempt int) {
	if !s.cfg.Agent.Known(uid) {
		return
	}
	over := errors.New("over")
	_ = s.cfg.Agent.Watch(ctx, func(u agent.Update, _ int) error {
		if u.Pod.UID != uid {
			return nil
		}
		if u.Kind == agent.GoneUpdate {
			return over
		}
		if u.Status == nil {
			return nil
		}
		c := containerStatus(u.Status, container)
		if c == nil || c.RestartCount > int32(attempt) || c.State.Running == nil { //nolint:gosec // attempts are few
			return over
		}
		return nil
	})
}

type logQuery struct {
	follow, previous, timestamps bool
	tail                         *int64
	since                        time.Time
	limit                        int64
}

func parseLogQuery(r *http.Request) (q logQuery, err error) {
	flag := func(name string) bool { v, _ := strconv.ParseBool(r.FormValue(name)); return v }
	q.follow, q.previous, q.timestamps = flag("follow"), flag("previous"), flag("timestamps")
	number := func(name string) *int64 {
		text := r.FormValue(name)
		if text == "" || err != nil {
			return nil
		}
		n, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil || n < 0 {
			err = badRequest{fmt.Errorf("%s is %q, want a number that is not negative", name, text)}
			return nil
		}
		return &n
	}
	q.tail = number("tailLines")
	if n := number("limitBytes"); n != nil {
		q.limit = *n
	}
	if n := number("sinceSeconds"); n != nil {
		q.since = time.Now().Add(-time.Duration(*n) * time.Second)
	}
	if text := r.FormValue("sinceTime"); text != "" && err == nil {
		if q.since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			err = badRequest{fmt.Errorf("sinceTime is %q, want a time such as 2026-01-02T15:04:05Z", text)}
		}
	}
	return q, err
}

// logs sends what containers of some pods write, all attempts, one line a line:
//
//	UID/CONTAINER ATTEMPT TIME STREAM TAG TEXT
//
// The tag is F for a line, P for the beginning of one that goes on in the next, L
// where lines may be missing. Parameters: uid (repeated), container (optional),
// tailLines, sinceTime. It ends when all pods are terminal or gone and all is
// sent; an answer that is cut off before that does not end well.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	q, err := parseLogQuery(r)
	if err != nil {
		return err
	}
	wanted := make(map[types.UID]bool)
	for _, uid := range r.Form["uid"] {
		wanted[types.UID(uid)] = true
	}
	out := bufio.NewWriterSize(w, 64<<10)
	flush := func() error { return errors.Join(out.Flush(), http.NewResponseController(w).Flush()) }
	var line []byte
	follower, err := podlogs.NewFollower(func(e podlogs.Entry) error {
		line = appendLogLine(line[:0], e)
		_, err := out.Write(line)
		return err
	}, flush)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	start := podlogs.Start{Since: q.since}
	if q.tail != nil {
		n := int(*q.tail)
		start.Tail = &n
	}
	f := logFeed{agent: s.cfg.Agent, follower: follower, start: start, container: r.FormValue("container"), open: wanted}
	ctx, cancel := context.WithCancel(r.Context())
	var g errgroup.Group
	g.Go(func() error { defer cancel(); return follower.Run(ctx) })
	g.Go(func() error { defer follower.Close(); return f.run(ctx) })
	if err := g.Wait(); err != nil {
		panic(http.ErrAbortHandler) // lines were sent: it is too late for an answer
	}
	return flush()
}

func appendLogLine(b []byte, e podlogs.Entry) []byte {
	b = append(append(b, e.Key...), ' ')
	b = append(strconv.AppendInt(b, int64(e.Attempt), 10), ' ')
	b = append(e.Time.AppendFormat(b, time.RFC3339Nano), ' ')
	b = append(append(b, cmp.Or(e.Stream, logs.Stdout)...), ' ')
	switch {
	case e.Lost:
		b = append(b, 'L', ' ')
	case e.Partial:
		b = append(b, 'P', ' ')
	default:
		b = append(b, 'F', ' ')
	}
	return append(append(b, e.Text...), '\n')
}

// logFeed tells a follower which containers there are.
type logFeed struct {
	agent     Agent
	follower  *podlogs.Follower
	start     podlogs.Start
	container string // empty: all

	open map[types.UID]bool // not terminal yet
}

// run returns when all pods are terminal or gone.
func (f *logFeed) run(ctx context.Context) error {
	for uid := range f.open {
		if !f.agent.Known(uid) {
			delete(f.open, uid)
		}
	}
	over := errors.New("over")
	if len(f.open) == 0 {
		return nil
	}
	// Containers of a pod by uid, to finish them when it is gone.
	followed := make(map[types.UID][]string)
	err := f.agent.Watch(ctx, func(u agent.Update, _ int) error {
		uid := u.Pod.UID
		if !f.open[uid] {
			return nil
		}
		if u.Status != nil {
			for _, c := range allContainers(u.Status) {
				if c.State.Running == nil && c.State.Terminated == nil && c.LastTerminationState.Terminated == nil ||
					f.container != "" && c.Name != f.container {
					continue
				}
				if dir, ok := f.agent.LogDir(uid, c.Name); ok {
					key := joinKey(uid, c.Name)
					if !slices.Contains(followed[uid], key) {
						f.follower.Add(key, dir, f.start)
						followed[uid] = append(followed[uid], key)
					}
				}
			}
		}
		if u.Kind == agent.GoneUpdate || u.Status != nil && terminal(u.Status) {
			for _, key := range followed[uid] {
				f.follower.Finish(key)
			}
			delete(f.open, uid)
			delete(followed, uid)
		}
		if len(f.open) == 0 {
			return over
		}
		return nil
	})
	if errors.Is(err, over) || ctx.Err() != nil {
		return nil
	}
	return err
}

func terminal(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}

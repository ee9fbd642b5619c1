package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/nodeapi"
)

type logsOptions struct {
	namespace, container string

	follow, previous, timestamps, all bool

	tail  int64
	since time.Duration
}

func logsCommand(a *app) *cobra.Command {
	var o logsOptions
	c := &cobra.Command{
		Use:   "logs POD",
		Short: "Show what the containers of a pod wrote",
		Long: `Show what a container of a pod wrote: that of its last start, rotated files
included, of which the five newest are kept, 10 MiB each. With -f, go on with what
it writes, through restarts, until the pod has ended. Where lines could not be
written, because the disk was full, a line says how many are lost.`,
		Example: `  berth logs web
  berth logs web -f --tail 20
  berth logs web -c proxy --since 10m --timestamps
  berth logs web --previous              # of the start before the last
  berth logs web --all-containers`,
		Args:              exactlyOne("pod"),
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.previous && o.follow {
				return usageError("--previous has ended: there is nothing to follow")
			}
			if cmd.Flags().Changed("tail") && o.tail < 0 {
				return usageError("--tail is %d, want a number of lines", o.tail)
			}
			ctx, stop := untilSignal(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			err := a.logs(ctx, args[0], o)
			if ctx.Err() != nil && cmd.Context().Err() == nil {
				return &exitError{code: signalCode(ctx)}
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pod")
	f.StringVarP(&o.container, "container", "c", "", "container; needed if the pod has several")
	f.BoolVar(&o.all, "all-containers", false, "of all containers, with their names before the lines")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what is written")
	f.BoolVarP(&o.previous, "previous", "p", false, "of the start before the last")
	f.BoolVar(&o.timestamps, "timestamps", false, "with the time of each line")
	f.Int64Var(&o.tail, "tail", -1, "at most so many of the last lines (default all)")
	f.DurationVar(&o.since, "since", 0, "only lines that are not older than this, such as 10m")
	registerContainers(a, c)
	return c
}

func (a *app) logs(ctx context.Context, arg string, o logsOptions) (err error) {
	s, err := a.connectSettled(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	pod, err := s.onePod(ctx, arg, o.namespace)
	if err != nil {
		return err
	}
	names := containerNames(pod)
	if !o.all {
		name, err := oneContainer(pod, o.container)
		if err != nil {
			return err
		}
		names = []string{name}
	}
	var since time.Time
	if o.since > 0 {
		since = time.Now().Add(-o.since)
	}
	var tail *int64
	if o.tail >= 0 {
		tail = &o.tail
	}
	if o.follow {
		return a.followLogs(ctx, s, pod, names, tail, since, o)
	}
	out := bufio.NewWriterSize(a.out, 64<<10)
	defer func() { _ = out.Flush() }() // a reader that left is told of where it matters
	for _, name := range names {
		body, err := s.client.ContainerLog(ctx, nodeapi.ContainerLogRequest{
			Namespace: pod.Namespace, Pod: pod.Name, Container: name,
			Previous: o.previous, Timestamps: o.timestamps, Tail: tail, Since: since,
		})
		if err != nil {
			if o.all {
				continue // it has not started, or not twice
			}
			return err
		}
		if o.all {
			err = prefixed(out, body, name)
		} else {
			_, err = io.Copy(out, body)
		}
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	return nil
}

// prefixed copies lines with the container's name before each.
func prefixed(w io.Writer, r io.Reader, name string) error {
	in := bufio.NewReaderSize(r, 64<<10)
	begins := true
	for {
		part, err := in.ReadSlice('\n')
		if len(part) > 0 {
			if begins {
				fmt.Fprintf(w, "%s | ", name)
			}
			begins = part[len(part)-1] == '\n'
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// followLogs shows lines until the pod has ended. If the agent goes away, the
// next one is asked.
func (a *app) followLogs(ctx context.Context, s *session, pod *corev1.Pod, names []string, tail *int64, since time.Time, o logsOptions) error {
	r := nodeapi.LogsRequest{UIDs: []types.UID{pod.UID}, Tail: tail, Since: since}
	if !o.all {
		r.Container = names[0]
	}
	seen := newSeenLines()
	var line []byte
	for {
		skip := seen.again()
		err := s.client.Logs(ctx, r, func(l nodeapi.LogLine) error {
			if skip.knows(l) {
				return nil
			}
			seen.add(l)
			line = line[:0]
			if o.all {
				line = append(append(line, l.Container...), " | "...)
			}
			if o.timestamps && !l.Lost {
				line = append(l.Time.AppendFormat(line, time.RFC3339Nano), ' ')
			}
			if l.Lost {
				l.Text = []byte(lostText)
			}
			line = append(append(line, l.Text...), '\n')
			_, err := a.out.Write(line)
			return err
		})
		if !errors.Is(err, nodeapi.ErrCut) || ctx.Err() != nil {
			return err
		}
		a.begun = true
		// What was not shown yet must not be cut off by where we began.
		if len(seen.last) > 0 {
			r.Tail = nil
		}
		next, err := a.connectSettled(ctx)
		if err != nil {
			return err
		}
		s.client.Close()
		s.client, s.own = next.client, next.own
		pods, err := s.client.Pods(ctx)
		if err != nil || !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == pod.UID }) {
			return err
		}
	}
}

func containerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

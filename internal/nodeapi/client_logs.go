package nodeapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// LogLine is a line that a container wrote.
type LogLine struct {
	Time      time.Time
	UID       types.UID // of the pod
	Container string
	Attempt   int    // counts the container's starts, from 0
	Stream    string // stdout or stderr
	Text      []byte // without the line feed
	Partial   bool   // it goes on in the next line
	Lost      bool   // lines before this place may be missing; there is no text
}

// LogsRequest says which lines to follow.
type LogsRequest struct {
	UIDs      []types.UID
	Container string    // empty: all
	Tail      *int64    // begin with at most so many lines of each container; nil: all
	Since     time.Time // leave out what is older
}

// Logs calls fn, which may keep the text, with what containers of pods wrote and write, through restarts.
// It returns when the pods are terminal or gone and all is told.
func (c *Client) Logs(ctx context.Context, r LogsRequest, fn func(LogLine) error) error {
	q := url.Values{}
	for _, uid := range r.UIDs {
		q.Add("uid", string(uid))
	}
	if r.Container != "" {
		q.Set("container", r.Container)
	}
	if r.Tail != nil {
		q.Set("tailLines", strconv.FormatInt(*r.Tail, 10))
	}
	if !r.Since.IsZero() {
		q.Set("sinceTime", r.Since.Format(time.RFC3339Nano))
	}
	resp, err := c.stream(ctx, "GET", "/berth/v1/logs", q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, io.EOF) && len(line) == 0:
				return nil
			}
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		l, err := parseLogLine(line[:len(line)-1])
		if err != nil {
			return err
		}
		if err := fn(l); err != nil {
			return err
		}
	}
}

func parseLogLine(line []byte) (LogLine, error) {
	var part [5][]byte
	rest, ok := line, true
	for i := range part {
		var found bool
		part[i], rest, found = bytes.Cut(rest, []byte{' '})
		ok = ok && found
	}
	uid, container, named := bytes.Cut(part[0], []byte{'/'})
	attempt, err1 := strconv.Atoi(string(part[1]))
	at, err2 := time.Parse(time.RFC3339Nano, string(part[2]))
	if !ok || !named || err1 != nil || err2 != nil {
		return LogLine{}, fmt.Errorf("the agent sent a log line that is none: %.80q", line)
	}
	return LogLine{
		Time: at, UID: types.UID(uid), Container: string(container), Attempt: attempt, Stream: string(part[3]), Text: rest,
		Partial: string(part[4]) == "P", Lost: string(part[4]) == "L",
	}, nil
}

// ContainerLogRequest asks for the log of one attempt of a container.
type ContainerLogRequest struct {
	Namespace, Pod, Container string

	Previous, Timestamps bool
	Tail                 *int64
	Since                time.Time
}

// ContainerLog returns the log of one attempt of a container, as it wrote it.
func (c *Client) ContainerLog(ctx context.Context, r ContainerLogRequest) (io.ReadCloser, error) {
	q := url.Values{}
	if r.Previous {
		q.Set("previous", "true")
	}
	if r.Timestamps {
		q.Set("timestamps", "true")
	}
	if r.Tail != nil {
		q.Set("tailLines", strconv.FormatInt(*r.Tail, 10))
	}
	if !r.Since.IsZero() {
		q.Set("sinceTime", r.Since.Format(time.RFC3339Nano))
	}
	path := "/containerLogs/" + url.PathEscape(r.Namespace) + "/" + url.PathEscape(r.Pod) + "/" + url.PathEscape(r.Container)
	resp, err := c.request(ctx, "GET", path, q, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

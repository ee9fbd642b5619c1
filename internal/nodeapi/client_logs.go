package nodeapi

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// LogLine is a line that a container wrote.
type LogLine struct {
	Time      time.Time `json:"time"`
	UID       types.UID `json:"uid"` // of the pod
	Container string    `json:"container"`
	Attempt   int       `json:"attempt"` // counts the container's starts, from 0
	Stream    string    `json:"stream"`  // stdout or stderr
	Text      []byte    `json:"text"`    // without the line feed
	Partial   bool      `json:"partial,omitempty"`
}

// LogsRequest says which lines to follow.
type LogsRequest struct {
	UIDs      []types.UID
	Container string    // empty: all
	Tail      *int64    // begin with at most so many lines of each container; nil: all
	Since     time.Time // leave out what is older
}

// Logs calls fn with what containers of pods wrote and write, through restarts.
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
	return each(ctx, c, "GET", "/berth/v1/logs", q, fn)
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

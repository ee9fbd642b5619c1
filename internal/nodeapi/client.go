package nodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/socket"
)

// Error is an answer of the agent that says why something can't be done.
type Error struct {
	Code    int // of HTTP
	Message string
}

func (e *Error) Error() string { return e.Message }

// ErrCut says that the agent went away while it was answering.
var ErrCut = errors.New("the agent went away")

// Client asks the agent behind a socket. It is safe for concurrent use.
type Client struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	http *http.Client
	done func()
}

// NewClient returns a client of the agent whose socket is at path. Nothing is
// connected before the first call.
func NewClient(path string) *Client {
	return newClient(func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, path) })
}

func newClient(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Client {
	t := &http.Transport{DialContext: dial, DisableCompression: true}
	return &Client{dial: dial, http: &http.Client{Transport: t}, done: t.CloseIdleConnections}
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.done() }

// request sends one request and returns its answer, if that is good. It fails with
// ErrMute when the agent goes mute before all of the answer is there.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	g := c.guard(ctx)
	resp, err := c.send(g.ctx, method, path, query, body)
	if err != nil {
		err = g.err(err)
		g.end()
		return nil, err
	}
	resp.Body = guardedBody{resp.Body, g}
	return resp, nil
}

// stream is request for an answer that goes on: once it has begun, it is not cut.
func (c *Client) stream(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	resp, err := c.request(ctx, method, path, query, nil)
	if err == nil {
		resp.Body.(guardedBody).g.standsAlone() //nolint:forcetypeassert // what request gives
	}
	return resp, err
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(data)
	}
	target := "http://berth" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, in)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrCut, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return nil, &Error{Code: resp.StatusCode, Message: strings.TrimSpace(string(text))}
}

// call sends one request and decodes its answer.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	resp, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		switch {
		case errors.Is(err, ErrMute):
			return ErrMute
		case ctx.Err() != nil:
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrCut, err)
	}
	return nil
}

// each sends one request and calls fn with each object of its answer.
func each[T any](ctx context.Context, c *Client, method, path string, query url.Values, fn func(T) error) error {
	resp, err := c.stream(ctx, method, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var v T
		if err := dec.Decode(&v); err != nil {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, io.EOF):
				return nil
			}
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		if err := fn(v); err != nil {
			return err
		}
	}
}

const versionPath = "/berth/v1/version"

// Version asks which agent it is.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	err = c.call(ctx, "GET", versionPath, nil, nil, &v)
	return v, err
}

// Leave asks the agent's process to end. Its pods run on.
func (c *Client) Leave(ctx context.Context) error {
	return c.call(ctx, "POST", "/berth/v1/leave", nil, nil, &struct{}{})
}

// LeaveIdle is Leave for an agent that nobody needs: no pod lives, and no run follows
// one. false: it stays.
func (c *Client) LeaveIdle(ctx context.Context) (bool, error) {
	err := c.call(ctx, "POST", "/berth/v1/leave", url.Values{"idle": {"true"}}, nil, &struct{}{})
	var answer *Error
	if errors.As(err, &answer) && answer.Code == http.StatusConflict {
		return false, nil
	}
	return err == nil, err
}

// Pods lists all pods with their newest status.
func (c *Client) Pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.call(ctx, "GET", "/pods", nil, nil, &list)
	return list.Items, err
}

// Describe tells all that is known of the pods with these uids.
func (c *Client) Describe(ctx context.Context, uids []types.UID) (all []agent.Description, err error) {
	q := url.Values{}
	for _, uid := range uids {
		q.Add("uid", string(uid))
	}
	err = c.call(ctx, "GET", "/berth/v1/describe", q, nil, &all)
	return all, err
}

// Apply asks for objects and returns the pods' names in the order given. A run
// that watches follows them from then on; empty: no run.
func (c *Client) Apply(ctx context.Context, o agent.Objects, run string) (refs []agent.Ref, err error) {
	err = c.call(ctx, "POST", "/berth/v1/apply", runQuery(run), o, &refs)
	return refs, err
}

// Told says that the ends of pods were told to the user who awaited them.
func (c *Client) Told(ctx context.Context, uids []types.UID) error {
	return c.call(ctx, "POST", "/berth/v1/told", nil, uids, &struct{}{})
}

// Watch calls begun when the watch stands, then fn with the newest status of each
// pod, then with all that happens. lost counts what a slow reader missed. It
// returns when ctx ends, fn fails, or with ErrCut.
func (c *Client) Watch(ctx context.Context, begun func(), fn func(u agent.Update, lost int) error) error {
	return c.WatchAs(ctx, "", nil, begun, fn)
}

// WatchAs is Watch for a run, which follows the pods with these uids.
func (c *Client) WatchAs(ctx context.Context, run string, uids []types.UID, begun func(), fn func(u agent.Update, lost int) error) error {
	q := runQuery(run)
	for _, uid := range uids {
		q.Add("uid", string(uid))
	}
	resp, err := c.stream(ctx, "GET", "/berth/v1/watch", q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	begun()
	dec := json.NewDecoder(resp.Body)
	for {
		var w watched
		if err := dec.Decode(&w); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		if err := fn(w.Update, w.Lost); err != nil {
			return err
		}
	}
}

// Stop ends what runs of a pod. grace in seconds can shorten the pod's own.
func (c *Client) Stop(ctx context.Context, namespace, name string, grace *int64) (ref agent.Ref, err error) {
	err = c.call(ctx, "POST", podPath(namespace, name)+"/stop", graceQuery(grace), nil, &ref)
	return ref, err
}

// Delete ends a pod and all that is left of it.
func (c *Client) Delete(ctx context.Context, namespace, name string, grace *int64) (ref agent.Ref, err error) {
	err = c.call(ctx, "DELETE", podPath(namespace, name), graceQuery(grace), nil, &ref)
	return ref, err
}

// DeleteRef is Delete for exactly that pod, not another of the same name.
func (c *Client) DeleteRef(ctx context.Context, ref agent.Ref, grace *int64) error {
	q := graceQuery(grace)
	q.Set("uid", string(ref.UID))
	return c.call(ctx, "DELETE", podPath(ref.Namespace, ref.Name), q, nil, &ref)
}

// Released is what becomes of a pod that a run lets go of.
type Released int

// What becomes of a pod that a run lets go of.
const (
	Ends     Released = iota // it was asked to end
	Followed                 // it goes on, because another run follows it
	HadEnded                 // it had ended already, and stays listed
)

// Waited is what a run has waited for in vain. The zero value is: nothing, it does
// not want the pod any more.
type Waited struct {
	Time time.Duration // so long
	Why  string        // what the pod was not done by; may be empty
}

// Release says that a run follows a pod no more, and asks exactly that pod to end
// where that is left to do. A pod that the run has waited for in vain stays listed.
func (c *Client) Release(ctx context.Context, run string, ref agent.Ref, w Waited, grace *int64) (Released, error) {
	q := graceQuery(grace)
	q.Set("uid", string(ref.UID))
	q.Set("run", run)
	if w.Time > 0 {
		q.Set("waited", w.Time.String())
		q.Set("why", w.Why)
	}
	err := c.call(ctx, "DELETE", podPath(ref.Namespace, ref.Name), q, nil, &ref)
	var answer *Error
	if errors.As(err, &answer) {
		switch answer.Code {
		case http.StatusConflict:
			return Followed, nil
		case http.StatusGone:
			return HadEnded, nil
		}
	}
	return Ends, err
}

func runQuery(run string) url.Values {
	q := url.Values{}
	if run != "" {
		q.Set("run", run)
	}
	return q
}

func podPath(namespace, name string) string {
	return "/berth/v1/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

func graceQuery(grace *int64) url.Values {
	q := url.Values{}
	if grace != nil {
		q.Set("grace", strconv.FormatInt(*grace, 10))
	}
	return q
}

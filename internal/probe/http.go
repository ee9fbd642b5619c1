package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/httpget"
)

// httpCheck asks an HTTP server. Any status from 200 to 399 is success; a
// redirect to another host is one with a warning.
type httpCheck struct {
	client *http.Client
	req    *http.Request
}

func newHTTPCheck(clients *httpget.Clients, action *corev1.HTTPGetAction, container *corev1.Container, ip string) checker {
	req, err := httpget.Request(action, container, ip, "probe")
	if err != nil {
		return unable{err}
	}
	client := clients.HTTP1
	if action.Protocol != nil && *action.Protocol == corev1.HTTPProtocolHTTP2 {
		client = clients.H2C
	}
	req.Close = true
	return &httpCheck{client: client, req: req}
}

func (h *httpCheck) check(ctx context.Context, timeout time.Duration) verdict {
	resp, err := h.client.Do(h.req.WithContext(ctx))
	if lack(err) {
		return void(err)
	}
	if err != nil {
		return failed(httpError(ctx, err, timeout))
	}
	defer resp.Body.Close()
	body, err := readText(resp.Body)
	switch {
	case err != nil:
		return failed(fmt.Sprintf("cannot read the body after status %d: %s", resp.StatusCode, httpError(ctx, err, timeout)))
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return passed(body)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return verdict{ok: true, warning: true, output: "Probe terminated redirects, Response body: " + body}
	}
	// The body stays out: the message ends up in events, which others may read.
	return failed(fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode))
}

// httpError puts an error in words: without the request's headers, and with the
// time-out by its length.
func httpError(ctx context.Context, err error, timeout time.Duration) string {
	if !timedOut(ctx, err) {
		return err.Error()
	}
	var at *url.Error
	if errors.As(err, &at) {
		return fmt.Sprintf("Get %q: context deadline exceeded (no answer within %s)", at.URL, timeout)
	}
	return fmt.Sprintf("context deadline exceeded (not complete within %s)", timeout)
}

// readText reads a body up to the limit; more is no error. What is kept is for
// people, the rest is read so that the server can finish its answer.
func readText(r io.Reader) (string, error) {
	var buf [1024]byte
	var kept []byte
	for total := 0; total < maxBody; {
		n, err := r.Read(buf[:min(len(buf), maxBody-total)])
		total += n
		kept = append(kept, buf[:min(n, maxOutput+1-min(len(kept), maxOutput+1))]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return string(kept), err
		}
	}
	return string(kept), nil
}

package imagestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
)

// busyError is the answer of a registry that wants to be asked later. It is an
// ErrBusy.
type busyError struct {
	host   string
	status int
	until  time.Time // zero: it did not say
	said   string    // its own words; may be empty
}

func (e *busyError) Error() string {
	text := fmt.Sprintf("%v: %s answers %d %s", ErrBusy, e.host, e.status, http.StatusText(e.status))
	if e.said != "" {
		text += fmt.Sprintf(" (%s)", e.said)
	}
	if !e.until.IsZero() {
		text += ", ask again at " + e.until.UTC().Format(time.RFC3339)
	}
	return text
}

func (e *busyError) Unwrap() error { return ErrBusy }

// patience remembers until when registries do not want to be asked. It is safe
// for concurrent use: all requests of a pull share one.
type patience struct {
	mu   sync.Mutex
	busy map[string]*busyError // guarded by mu; by host; those that said until when
}

// patient is a transport that makes a busyError of a registry's wish to be asked
// later, and asks no more until then. It does not wait: whoever asked knows
// whether that is worth it.
type patient struct {
	next     http.RoundTripper
	patience *patience
}

func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	if busy := p.patience.asked(r.URL.Host, time.Now()); busy != nil {
		if r.Body != nil {
			r.Body.Close() //nolint:errcheck // nothing was sent
		}
		return nil, busy
	}
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	until := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if resp.StatusCode != http.StatusTooManyRequests && (resp.StatusCode != http.StatusServiceUnavailable || until.IsZero()) {
		return resp, nil
	}
	defer resp.Body.Close()
	busy := &busyError{host: r.URL.Host, status: resp.StatusCode, until: until, said: reasonIn(resp.Body)}
	p.patience.note(busy)
	return nil, busy
}

// CloseIdleConnections closes those that wait for another request.
func (p *patient) CloseIdleConnections() {
	if c, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (p *patience) asked(host string, now time.Time) *busyError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if busy := p.busy[host]; busy != nil && now.Before(busy.until) {
		return busy
	}
	return nil
}

func (p *patience) note(busy *busyError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.busy[busy.host]; known == nil || busy.until.After(known.until) {
		p.busy[busy.host] = busy
	}
}

// maxRetryAfter bounds what a registry can ask for, so that sums stay sound.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header Retry-After: seconds, or a date. The result is
// zero if there is none or it can't be read.
func retryAfter(header string, now time.Time) time.Time {
	if seconds, err := strconv.ParseUint(header, 10, 63); err == nil || errors.Is(err, strconv.ErrRange) {
		return now.Add(time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second) //nolint:gosec // bounded
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return time.Time{}
	}
	return now.Add(min(max(at.Sub(now), 0), maxRetryAfter))
}

// reasonIn reads the first error of a registry's answer.
func reasonIn(body io.Reader) string {
	raw, err := io.ReadAll(io.LimitReader(body, 8<<10))
	var errs docker.Errors
	if err != nil || json.Unmarshal(raw, &errs) != nil || len(errs) == 0 {
		return ""
	}
	return fmt.Sprintf("%.300s", errs[0].Error())
}

// Unavailable reports whether a pull failed because the registry could not be
// reached, broke the connection, or said that it cannot answer now.
func Unavailable(err error) bool {
	for _, other := range []error{ErrMissing, ErrDenied, ErrNoSpace, ErrPlatform, ErrNotImage} {
		if errors.Is(err, other) {
			return false
		}
	}
	var (
		status remoteerrors.ErrUnexpectedStatus
		sent   *url.Error // a request that got no answer
		op     *net.OpError
	)
	switch {
	case errors.As(err, &status):
		return status.StatusCode >= 500 || status.StatusCode == http.StatusRequestTimeout
	case errors.Is(err, ErrBusy), errors.Is(err, ErrStalled), errors.As(err, &sent), errors.As(err, &op):
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

package imagestore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// keepPartial is how long what a failed pull has fetched is kept for the next
// try.
const keepPartial = time.Hour

// flight is a pull under way. Callers that want the same image with the same
// credentials wait for one flight.
type flight struct {
	tracker *tracker
	cancel  context.CancelFunc
	done    chan struct{} // closed when img and err are set
	img     Image
	err     error
	waiters int // guarded by Store.mu
}

// Pull fetches and unpacks an image from its registry, also if an image of that
// name is here. Concurrent pulls of the same image share the work, and pulls of
// images with common layers share those. progress may be nil; it is called from
// the calling goroutine only, at most every 100 ms, and once at the end.
//
// Errors tell by errors.Is whether the image does not exist (ErrMissing), the
// registry refused (ErrDenied), the disk is full (ErrNoSpace), or what is there
// cannot run here (ErrPlatform, ErrNotImage); Unavailable tells whether the
// registry is to blame. After an error the store is as
// before, but for parts kept for the next try.
func (s *Store) Pull(ctx context.Context, ref string, auth *runtimeapi.AuthConfig, progress func(Progress)) (Image, error) {
	named, err := parseReference(ref)
	if err != nil {
		return Image{}, err
	}
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	f, key, err := s.join(ctx, named, auth)
	if err != nil {
		return Image{}, err
	}
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	reported := -1
	report := func() {
		if progress == nil {
			return
		}
		if p, n := f.tracker.report(); n != reported {
			reported = n
			progress(p)
		}
	}
	for {
		select {
		case <-f.done:
			report()
			s.abandon(key, f)
			if f.err != nil {
				return Image{}, fmt.Errorf("cannot pull image %q: %w", named.String(), f.err)
			}
			return f.img, nil
		case <-ticker.C:
			report()
		case <-ctx.Done():
			if s.abandon(key, f) {
				<-f.done
			}
			return Image{}, fmt.Errorf("cannot pull image %q: %w", named.String(), context.Cause(ctx))
		}
	}
}

// join finds the flight for an image or starts one.
func (s *Store) join(ctx context.Context, named reference.Named, auth *runtimeapi.AuthConfig) (*flight, string, error) {
	key := named.String()
	if auth != nil {
		key = fmt.Sprintf("%s %x", key, sha256.Sum256([]byte(auth.String())))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.flights[key]; ok {
		f.waiters++
		return f, key, nil
	}
	if s.closing || !s.calls.enter() {
		return nil, "", ErrClosed
	}
	// The flight outlives a caller that gives up while others still wait.
	flightCtx, cancel := context.WithCancel(s.context(context.WithoutCancel(ctx)))
	f := &flight{tracker: newTracker(named.String()), cancel: cancel, done: make(chan struct{}), waiters: 1}
	s.flights[key] = f
	go func() {
		defer s.calls.leave()
		defer cancel()
		f.img, f.err = s.pull(flightCtx, named, auth, f.tracker)
		s.mu.Lock()
		if s.flights[key] == f {
			delete(s.flights, key)
		}
		s.mu.Unlock()
		close(f.done)
	}()
	return f, key, nil
}

// abandon says that a caller no longer waits. The last one stops the flight, so
// that it ends soon; the result is then true.
func (s *Store) abandon(key string, f *flight) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.waiters--
	if f.waiters > 0 {
		return false
	}
	f.cancel()
	if s.flights[key] == f {
		delete(s.flights, key)
	}
	return true
}

// pull does the work of one flight.
func (s *Store) pull(ctx context.Context, named reference.Named, auth *runtimeapi.AuthConfig, t *tracker) (img Image, err error) {
	if err := s.pulls.Acquire(ctx, 1); err != nil {
		return Image{}, err
	}
	defer s.pulls.Release(1)
	t.enter(Resolving)
	began := time.Now()

	conn, err := s.cfg.Registries.connect(ctx, named, auth)
	if err != nil {
		return Image{}, err
	}
	defer conn.close()
	name, target, err := s.resolve(ctx, conn, named)
	if errdefs.IsNotFound(err) {
		return Image{}, missing(err, named.String())
	}
	if err != nil {
		return Image{}, explain(err)
	}
	fetcher, err := conn.Fetcher(ctx, name)
	if err != nil {
		return Image{}, explain(err)
	}

	lctx, end, err := s.lease(ctx, "pull "+named.String())
	if err != nil {
		return Image{}, err
	}
	defer func() { end(err) }()
	t.enter(Downloading)
	f, err := s.obtain(lctx, target, fetcher, t)
	if err != nil {
		return Image{}, err
	}
	names := []string{digestName(named, target.Digest)}
	if _, byDigest := named.(reference.Digested); !byDigest {
		names = append(names, named.String())
	}
	img, err = s.announce(lctx, f, target, names)
	if err != nil {
		return Image{}, err
	}
	t.finish()
	s.log.Info("image pulled", "image", named.String(), "id", f.id, "took", time.Since(began))
	return img, nil
}

// announce gives an image names. Somebody who removes it meanwhile has not meant
// the one that has just come: its data is leased, so that it gets them again.
func (s *Store) announce(ctx context.Context, f *facts, target imgspec.Descriptor, names []string) (img Image, err error) {
	for range 10 {
		s.use(f.id.String())
		for _, n := range names {
			if err := s.record(ctx, n, target, nil); err != nil {
				return Image{}, explain(err)
			}
		}
		img, err = s.get(ctx, f.id.String())
		if !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return img, err
}

// resolve asks the registry which digest the reference means.
func (s *Store) resolve(ctx context.Context, r remotes.Resolver, named reference.Named) (name string, target imgspec.Descriptor, err error) {
	err = s.retry(ctx, func() error {
		return s.unstalled(ctx, func(ctx context.Context, _ func()) error {
			name, target, err = r.Resolve(ctx, named.String())
			return err
		})
	})
	return name, target, err
}

// unstalled ends a request, with ErrStalled, when it does not report that
// something came for Config.StallTimeout.
func (s *Store) unstalled(ctx context.Context, request func(ctx context.Context, came func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(s.cfg.StallTimeout, func() { cancel(ErrStalled) })
	defer timer.Stop()
	err := request(ctx, func() { timer.Reset(s.cfg.StallTimeout) })
	if err != nil && errors.Is(context.Cause(ctx), ErrStalled) {
		return fmt.Errorf("%w for %v: %w", ErrStalled, s.cfg.StallTimeout, err)
	}
	return err
}

// retry calls try up to four times, as long as its error is a passing one. It
// waits between them for as long as the registry asks, within a limit.
func (s *Store) retry(ctx context.Context, try func() error) error {
	delay, patience := s.cfg.RetryDelay, s.cfg.MaxRetryAfter
	for attempt := 1; ; attempt++ {
		err := try()
		if attempt == 4 || !transient(ctx, err) {
			return err
		}
		wait := delay
		var busy *busyError
		if errors.As(err, &busy) {
			asked := time.Until(busy.until)
			if asked > patience {
				return err
			}
			wait = max(wait, asked)
			patience -= wait
		}
		s.log.Debug("fetch is tried again", "err", err, "retry", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
		delay *= 2
	}
}

// lease protects what is written under the returned context from garbage
// collection, until end is called with the outcome. Parts of a failed work are
// kept for a while, unless the disk is full.
func (s *Store) lease(ctx context.Context, purpose string) (_ context.Context, end func(outcome error), err error) {
	l, err := s.leases.Create(ctx, leases.WithRandomID(), leases.WithLabel("berth.run/purpose", purpose))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a lease: %w", err)
	}
	end = func(outcome error) {
		ctx := context.WithoutCancel(ctx)
		full := errors.Is(outcome, ErrNoSpace)
		if outcome != nil && !full {
			s.keepForRetry(ctx, l, purpose)
		} else {
			s.dropKept(ctx, purpose)
		}
		if err := s.leases.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			s.log.Warn("cannot end a lease", "lease", l.ID, "err", err)
		}
		if outcome != nil {
			s.noteGarbage()
		}
		if full {
			if _, err := s.db.GarbageCollect(ctx); err != nil {
				s.log.Warn("cannot free what a failed pull left", "err", err)
			}
		}
	}
	return leases.WithLease(ctx, l.ID), end, nil
}

func retryLease(purpose string) string {
	return fmt.Sprintf("retry-%x", sha256.Sum256([]byte(purpose)))
}

// keepForRetry copies what a lease holds to one that ends by itself. Failing to
// do so costs only time.
func (s *Store) keepForRetry(ctx context.Context, l leases.Lease, purpose string) {
	held, err := s.leases.ListResources(ctx, l)
	if err != nil || len(held) == 0 {
		return
	}
	s.dropKept(ctx, purpose)
	kept, err := s.leases.Create(ctx, leases.WithID(retryLease(purpose)), leases.WithExpiration(keepPartial))
	if err != nil {
		return
	}
	for _, r := range held {
		if err := s.leases.AddResource(ctx, kept, r); err != nil {
			s.log.Debug("cannot keep a part of a failed pull", "resource", r.ID, "err", err)
		}
	}
}

func (s *Store) dropKept(ctx context.Context, purpose string) {
	err := s.leases.Delete(ctx, leases.Lease{ID: retryLease(purpose)})
	if err != nil && !errdefs.IsNotFound(err) {
		s.log.Debug("cannot end a lease", "lease", retryLease(purpose), "err", err)
	}
}

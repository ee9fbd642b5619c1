package imagestore

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
)

var (
	// ErrNotFound: no image here has that name or id, or it is incomplete and
	// has to be pulled again.
	ErrNotFound = errors.New("image not found")
	// ErrAmbiguous: a short id fits several images.
	ErrAmbiguous = errors.New("more than one image has an id that starts so")
	// ErrInUse: another process has the store open.
	ErrInUse = errors.New("image store is in use by another process")
	// ErrInvalidReference: the text is not a valid image reference.
	ErrInvalidReference = errors.New("invalid image reference")
	// ErrMissing: the registry has no such image.
	ErrMissing = errors.New("not found in the registry")
	// ErrDenied: the registry wants other credentials, or hides the image.
	ErrDenied = errors.New("access denied by the registry (wrong or missing credentials, or no such image)")
	// ErrNoSpace: the disk that holds the store is full.
	ErrNoSpace = errors.New("no space left on the disk of the image store")
	// ErrPlatform: the image exists, but not for this machine.
	ErrPlatform = errors.New("image is not made for this platform")
	// ErrNotImage: what the reference or archive holds is no container image.
	ErrNotImage = errors.New("not a container image")
	// ErrDamaged: data does not have the digest it should have.
	ErrDamaged = errors.New("data is damaged")
	// ErrIDMapUnsupported: the filesystem or kernel cannot shift the owners of
	// files, so the snapshot cannot be used in a user namespace.
	ErrIDMapUnsupported = errors.New("id-mapped snapshots are not supported here (needs overlayfs and Linux 5.19)")
	// ErrKeyInUse: the snapshot key belongs to a snapshot of another image.
	ErrKeyInUse = errors.New("snapshot key is used for another image")
	// ErrStalled: the registry accepted a request and then sent nothing.
	ErrStalled = errors.New("the registry stopped sending")
	// ErrBusy: the registry asks for fewer requests, for longer than is waited.
	ErrBusy = errors.New("the registry wants to be asked later")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("image store is closed")
)

// explained is an error with the sentinel that tells its kind, in words that say
// each thing once.
type explained struct {
	kind, cause error
	detail      string // what the cause says beyond its kind; may be empty
}

func (e *explained) Error() string {
	if e.detail == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.detail
}
func (e *explained) Unwrap() []error { return []error{e.kind, e.cause} }

// What containerd's errors say of their kind, in front and at the end.
const (
	accessDenied = "pull access denied, repository does not exist or may require authorization: "
	notFound     = ": not found" // often more than once
)

// missing says that the registry has not got something. about is what the caller
// names anyhow.
func missing(cause error, about string) error {
	detail := cause.Error()
	for strings.HasSuffix(detail, notFound) {
		detail = strings.TrimSuffix(detail, notFound)
	}
	if detail == about {
		detail = ""
	}
	return &explained{ErrMissing, cause, detail}
}

// explain adds to err the sentinel that tells a caller what kind of error it
// is. Errors that have one already, and nil, come back as they are.
func explain(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrMissing, ErrDenied, ErrNoSpace, ErrPlatform, ErrNotImage, ErrDamaged, ErrNotFound, ErrBusy} {
		if errors.Is(err, known) {
			return err
		}
	}
	var status remoteerrors.ErrUnexpectedStatus
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case errors.As(err, &status) && (status.StatusCode == http.StatusUnauthorized || status.StatusCode == http.StatusForbidden),
		errors.Is(err, docker.ErrInvalidAuthorization), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return &explained{ErrDenied, err, strings.Replace(err.Error(), accessDenied, "", 1)}
	case errors.As(err, &status) && status.StatusCode == http.StatusNotFound, errdefs.IsNotFound(err):
		return missing(err, "")
	}
	return err
}

// transient reports whether the same request may succeed if it is sent again
// soon: the connection broke, the data was damaged, the registry is busy.
func transient(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var (
		status  remoteerrors.ErrUnexpectedStatus
		dns     *net.DNSError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		netErr  net.Error
	)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.ECONNREFUSED):
		return false
	case errors.As(err, &dns), errors.As(err, &unknown), errors.As(err, &host):
		return false
	case errors.As(err, &status):
		return status.StatusCode >= 500 || status.StatusCode == http.StatusRequestTimeout || noRange(err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return true
	case errors.Is(err, ErrStalled), errors.Is(err, ErrBusy), wrongDigest(err), errdefs.IsUnavailable(err):
		return true
	}
	return errors.As(err, &netErr)
}

// wrongDigest reports whether a commit was refused because size or digest of
// what was written are not the expected ones.
func wrongDigest(err error) bool {
	return errdefs.IsFailedPrecondition(err) || errors.Is(err, ErrDamaged)
}

// noRange reports whether the registry refused to send a blob from the middle.
func noRange(err error) bool {
	var status remoteerrors.ErrUnexpectedStatus
	return errors.As(err, &status) && status.StatusCode == http.StatusRequestedRangeNotSatisfiable
}

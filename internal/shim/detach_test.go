package shim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// zeros is an input without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Who attached to a container that does not read its input can leave, and others
// can attach after it.
func TestDetachFromAContainerThatDoesNotRead(t *testing.T) {
	for name, once := range map[string]bool{"kept open": false, "once": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.bundle("a", nil, "init")
			r.Stdin, r.StdinOnce = true, once
			n.start(r)
			ctx, cancel := context.WithCancel(n.ctx)
			time.AfterFunc(300*time.Millisecond, cancel) // enough to fill the FIFO; too little makes no false alarm
			err := n.ends("an attach", func() error {
				return n.Attach(ctx, shim.AttachRequest{ID: "a", Stdin: zeros{}, Stdout: &buffer{}})
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("attach says %v, want that it was cancelled", err)
			}
			if once {
				return
			}
			again, cancel := context.WithCancel(n.ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			err = n.ends("a second attach", func() error {
				return n.Attach(again, shim.AttachRequest{ID: "a", Stdin: zeros{}, Stdout: &buffer{}})
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the second attach says %v, want that it was cancelled", err)
			}
		})
	}
}

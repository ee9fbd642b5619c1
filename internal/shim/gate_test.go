package shim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// Who shuts a gate is alone: those inside leave first, newcomers wait.
func TestGateShutsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g shim.Gate
		began := time.Now()
		leave, err := g.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*time.Second, leave)
		entered := make(chan time.Duration)
		time.AfterFunc(time.Second, func() {
			leave, err := g.Enter(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			entered <- time.Since(began)
			leave()
		})
		open, err := g.Shut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(began); got != 2*time.Second {
			t.Errorf("alone after %s, want 2s", got)
		}
		time.AfterFunc(3*time.Second, open)
		if got := <-entered; got != 5*time.Second {
			t.Errorf("the newcomer is inside after %s, want 5s", got)
		}
	})
}

// A gate that could not be shut in time is open again, and a second one who wants to
// be alone waits for the first.
func TestGateOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g shim.Gate
		leave, err := g.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := g.Shut(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("shut with somebody inside: %v", err)
		}
		leaveToo, err := g.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave()
		leaveToo()
		open, err := g.Shut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(time.Second, open)
		open, err = g.Shut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("alone after %s, want 1s", got)
		}
		ctx, stop = context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := g.Enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("entered a gate that is shut: %v", err)
		}
		open()
	})
}

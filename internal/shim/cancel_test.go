package shim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// soon bounds what must end at once: a call that is stuck never does.
const soon = 20 * time.Second

// ends fails the test if the call goes on after its context has ended.
func (n *node) ends(what string, call func() error) error {
	n.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(soon):
		n.Fatalf("%s goes on although its context has ended", what)
		return nil
	}
}

// A call whose context ends at any moment ends, too: also when the shim learns of
// that before it learns of the call.
func TestCancelledBeforeTheShimKnowsTheCall(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", nil, "init")
	r.Stdin = true
	n.start(r)
	for range 40 {
		ctx, cancel := context.WithCancel(n.ctx)
		cancel()
		err := n.ends("an exec", func() error {
			_, err := n.Exec(ctx, shim.ExecRequest{ID: "a", Process: process("sleep")})
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("exec says %v, want that it was cancelled", err)
		}
		err = n.ends("an attach", func() error {
			return n.Attach(ctx, shim.AttachRequest{ID: "a", Stdout: &buffer{}})
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("attach says %v, want that it was cancelled", err)
		}
	}
	var out buffer
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("procs"), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "2 ") {
		t.Errorf("processes: %q, want the first one and this", got)
	}
}

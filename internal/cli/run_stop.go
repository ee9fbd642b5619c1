package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

// fate is what became of a pod by other means than its own.
type fate int

const (
	released fate = iota + 1 // this run asked for its end; it goes
	givenUp                  // likewise, and it stays listed
	followed                 // this run let go of it, another follows it
	removed                  // somebody else asked for its end
	replaced                 // a new pod of its name came
)

// take notes an update and shows it.
func (r *run) take(u agent.Update) {
	p, before := r.board.take(u)
	if p == nil {
		return
	}
	first := before == nil || !isTerminal(before)
	if r.fates[u.Pod.UID] == 0 && first && p.over() {
		switch {
		case u.Deleted == agent.Replaced:
			r.fates[u.Pod.UID] = replaced
		case u.Deleted == agent.Removed || p.gone || p.status.Reason == agent.ReasonStopped || p.status.Reason == agent.ReasonTimedOut:
			r.fates[u.Pod.UID] = removed
		}
	}
	if before == nil && p.status != nil && isTerminal(p.status) && endedBefore(p.status, p.since.Truncate(time.Second)) {
		r.view.note("pod " + p.name + " had ended before, and nobody was told: this is how (run it again to start it anew)")
	}
	r.view.update(u, p, before)
}

// endedBefore says that the last container of a pod ended before then. A pod that
// may not run here has failed at once, without one.
func endedBefore(s *corev1.PodStatus, then time.Time) bool {
	var last time.Time
	for _, c := range containersOf(s) {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return !last.IsZero() && last.Before(then)
}

// tellTaken says which pods were not left to end by themselves.
func (r *run) tellTaken() (any bool) {
	for _, p := range r.board.pods {
		switch r.fates[p.ref.UID] {
		case removed:
			r.view.note("pod " + p.name + " was stopped by another command")
		case replaced:
			r.view.note("pod " + p.name + " was replaced by a new version of it")
		default:
			continue
		}
		any = true
	}
	return any
}

// stop ends the pods: with their grace the first time, then at once.
func (r *run) stop(ctx context.Context, sig os.Signal) error {
	r.stopAsked++
	var grace *int64
	switch r.stopAsked {
	case 1:
		r.stopping = sig
		r.view.note("stopping the pods; once more kills them")
	case 2:
		r.view.note("killing the pods")
		grace = new(int64)
	default:
		return nil
	}
	return r.release(ctx, grace)
}

// longestWhy is how much of what a pod was not done by is kept with it, in cells of
// a terminal: containers may write long texts.
const longestWhy = 1000

// noteUnfinished remembers what keeps pods from being done, before they are
// stopped: after that, it is that they are being stopped.
func (r *run) noteUnfinished() {
	r.unfinished = make(map[types.UID]string)
	for _, p := range r.board.pods {
		if !p.over() {
			r.unfinished[p.ref.UID] = cut(strings.Join(p.causes(true), "; "), longestWhy)
		}
	}
}

// release ends the pods that live, but for those that other runs follow. Pods
// that have ended stay listed, and so do those whose time was up. It fails when
// there is nobody to ask.
func (r *run) release(ctx context.Context, grace *int64) error {
	for len(r.updates) > 0 {
		r.take(<-r.updates)
	}
	end, waited := released, nodeapi.Waited{}
	if r.timedOut {
		end, waited.Time = givenUp, r.opts.timeout
	}
	for _, p := range r.board.pods {
		is := r.fates[p.ref.UID]
		if p.over() || is == followed {
			continue
		}
		waited.Why = r.unfinished[p.ref.UID]
		became, err := r.session.client.Release(ctx, r.id, p.ref, waited, grace)
		var answer *nodeapi.Error
		switch {
		case became == nodeapi.HadEnded:
			continue // we hear of it
		case became == nodeapi.Followed:
			r.fates[p.ref.UID] = followed
			r.view.note("pod " + p.name + " goes on: another berth run follows it")
			continue
		case errors.As(err, &answer) && answer.Code == 404:
			// It goes, or is gone.
		case errors.Is(err, nodeapi.ErrMute):
			return fmt.Errorf("cannot stop pod %s: %w", p.name, err)
		case err != nil && !errors.Is(err, nodeapi.ErrCut):
			r.view.note(fmt.Sprintf("cannot stop pod %s: %v", p.name, err))
		}
		p.asked = p.asked || err == nil
		r.fates[p.ref.UID] = end
	}
	return nil
}

// letGo says that a pod which is to be stopped needs no more waiting.
func (r *run) letGo(p *podState) bool {
	switch r.fates[p.ref.UID] {
	case released:
		return p.gone
	case followed:
		return true
	default:
		return p.over()
	}
}

// told makes known that the user has heard how the pods ended: they run anew when
// they are asked for once more. An agent that has left meanwhile is followed by
// another, or by one of this process.
func (r *run) told(ctx context.Context) error {
	var uids []types.UID
	for _, p := range r.board.pods {
		if p.over() && !p.gone {
			uids = append(uids, p.ref.UID)
		}
	}
	if len(uids) == 0 {
		return nil
	}
	for deadline := time.Now().Add(handOver); ; {
		err := r.session.client.Told(ctx, uids)
		if err == nil {
			return nil
		}
		if !errors.Is(err, nodeapi.ErrCut) || r.session.own != nil || time.Now().After(deadline) {
			return fmt.Errorf("cannot note that the end of the pods was told, so the next berth run of them tells it once more: %w", err)
		}
		r.app.begun = true
		r.session.client.Close()
		next, err := r.app.connect(ctx, here)
		if errors.Is(err, errRemoved) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot note that the end of the pods was told, so the next berth run of them tells it once more: %w", err)
		}
		r.session = next
	}
}

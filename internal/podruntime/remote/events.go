package remote

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/podconfig"
)

// reconnect is how long after a lost stream of events it is asked for again,
// and how often all is compared meanwhile.
const reconnect = time.Second

// Events passes the runtime's events on as pokes until ctx ends. While the
// runtime sends none, because it is away or cannot, all is compared each second;
// otherwise each Config.Relist.
func (r *Runtime) Events(ctx context.Context, poke func(types.UID)) error {
	lost := false
	for ctx.Err() == nil {
		err := r.stream(ctx, poke)
		if ctx.Err() != nil {
			return nil
		}
		if !lost {
			lost = true
			r.cfg.Log.Warn("the runtime sends no events, it is asked each second", "err", err)
		}
		r.compare(ctx, poke)
		if status.Code(err) == codes.Unimplemented {
			// It will not learn: ask for ever.
			for sleep(ctx, reconnect) {
				r.compare(ctx, poke)
			}
			return nil
		}
		sleep(ctx, reconnect)
	}
	return nil
}

// stream reads events until the stream ends, and says why it did.
func (r *Runtime) stream(ctx context.Context, poke func(types.UID)) error {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	connected := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- r.cfg.Service.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			connected <- struct{}{}
		})
	}()
	relist := time.NewTicker(r.cfg.Relist)
	defer relist.Stop()
	for {
		select {
		case <-connected:
			// What happened before was not told.
			for _, uid := range r.seen.outdateAll() {
				poke(uid)
			}
		case e := <-events:
			if uid := r.subject(e); uid != "" {
				r.seen.outdate(uid)
				poke(uid)
			}
		case <-relist.C:
			r.compare(ctx, poke)
		case err := <-ended:
			cancel()
			return err
		case <-ctx.Done():
			cancel()
			// The sender may be blocked on the channel.
			for {
				select {
				case <-events:
				case err := <-ended:
					return err
				}
			}
		}
	}
}

// subject is the pod that an event is about; empty: not known, and then nobody
// has ever seen it.
func (r *Runtime) subject(e *runtimeapi.ContainerEventResponse) types.UID {
	if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
		return types.UID(uid)
	}
	return r.seen.ownerOf(e.GetContainerId())
}

// compare pokes each pod that holds something else than was last seen.
func (r *Runtime) compare(ctx context.Context, poke func(types.UID)) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	boxes, err := r.cfg.Service.ListPodSandbox(ctx, nil)
	if err != nil {
		r.cfg.Log.Debug("cannot list sandboxes", "err", err)
		return
	}
	conts, err := r.cfg.Service.ListContainers(ctx, nil)
	if err != nil {
		r.cfg.Log.Debug("cannot list containers", "err", err)
		return
	}
	found := make(map[types.UID]map[string]string)
	add := func(labels map[string]string, id, state string) {
		uid := types.UID(labels[podconfig.LabelPodUID])
		if found[uid] == nil {
			found[uid] = make(map[string]string)
		}
		found[uid][id] = state
	}
	for _, b := range boxes {
		add(b.Labels, b.Id, boxState(b.State == runtimeapi.PodSandboxState_SANDBOX_READY))
	}
	for _, c := range conts {
		add(c.Labels, c.Id, string(stateOf(c.State)))
	}
	delete(found, "") // not made from a pod
	for uid, seen := range r.seen.states() {
		if !same(seen, found[uid]) {
			r.seen.outdate(uid)
			poke(uid)
		}
		delete(found, uid)
	}
	for uid := range found {
		poke(uid)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

package remote

import (
	"context"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// tellsAll is a runtime that tells more of a container to who asks for everything.
type tellsAll struct {
	*fakeCRI
	info map[string]string
}

func (f tellsAll) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	r, err := f.fakeCRI.ContainerStatus(ctx, id, verbose)
	if err == nil && verbose {
		r.Info = f.info
	}
	return r, err
}

// The signal that ended a container is seen where the runtime tells it, also of
// one that ends between being listed and being looked at.
func TestSignalThatEndedAContainer(t *testing.T) {
	for name, c := range map[string]struct {
		info       map[string]string
		endsListed bool
		want       int32
	}{
		"told":                       {map[string]string{"exitSignal": "15"}, false, 15},
		"told, and it ends just now": {map[string]string{"exitSignal": "9"}, true, 9},
		"not told":                   {map[string]string{"info": "{}"}, false, 0},
		"nonsense":                   {map[string]string{"exitSignal": "TERM"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCRI()
			r := onFake(t, f, func(cfg *Config) { cfg.Service = tellsAll{f, c.info} })
			pod := simplePod()
			f.put(pod, runtimeapi.ContainerState_CONTAINER_EXITED)
			if c.endsListed {
				f.put(pod, runtimeapi.ContainerState_CONTAINER_RUNNING)
				f.onList = func() { f.put(pod, runtimeapi.ContainerState_CONTAINER_EXITED) }
			}
			o, err := r.Observe(t.Context(), pod)
			if err != nil || len(o.Containers) != 1 {
				t.Fatalf("%+v, %v", o.Containers, err)
			}
			if got := o.Containers[0]; got.State != lifecycle.ContainerExited || got.Signal != c.want {
				t.Errorf("signal %d of a container that is %s, want %d", got.Signal, got.State, c.want)
			}
		})
	}
}

package remote

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/cgroup"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/podruntime"
	"github.com/berth-run/berth/internal/podruntime/podruntimetest"
	"github.com/berth-run/berth/internal/testutil/crinode"
	"github.com/berth-run/berth/internal/volume"
)

// realStack is the embedded runtime as it is in berth. All tests share one,
// since building and starting it takes a while.
type realStack struct {
	once    sync.Once
	err     error
	node    *crinode.Node
	service *cri.Service
	runtime *Runtime
	tree    *cgroup.Tree
}

var stack realStack

// real gives the shared stack, or skips the test if this machine can't run it.
func real(t *testing.T) *realStack {
	t.Helper()
	crinode.Needs(t)
	stack.once.Do(func() { stack.err = stack.open(context.Background()) })
	if stack.err != nil {
		t.Fatal(stack.err)
	}
	return &stack
}

// objects are ConfigMaps and Secrets; the tests have none.
type objects struct{}

func (objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (r *realStack) open(ctx context.Context) (err error) {
	r.node, err = crinode.Open(ctx, crinode.Config{
		Bridge: "bremotetest", CIDR: netip.MustParsePrefix("10.214.0.0/16"),
		Programs: map[string]string{"berth-demo": "github.com/berth-run/berth/cmd/berth-demo"},
	})
	if err != nil {
		return err
	}
	n := r.node
	if _, err := n.Images.DemoImage(ctx, n.Path("berth-demo")); err != nil {
		return err
	}
	r.service, err = cri.New(cri.Config{
		Run: n.Path("run"), Shim: n.Shim, Images: n.Images, Network: n.Network,
		ShimBinary: n.ShimBinary(), CgroupRoot: n.Cgroup, ImagesDir: n.Path("images"),
	})
	if err != nil {
		return err
	}
	if err := n.Serve(ctx, r.service); err != nil {
		return err
	}
	r.runtime, err = r.restarted()
	return err
}

// restarted makes another Runtime on the stack, as a restarted agent does.
func (r *realStack) restarted() (*Runtime, error) {
	tree, err := cgroup.Open(cgroup.Config{Root: r.node.Cgroup})
	if err != nil {
		return nil, err
	}
	r.tree = tree
	volumes, err := volume.New(volume.Config{Root: r.node.Path("root"), Sources: objects{}})
	if err != nil {
		return nil, err
	}
	return New(Config{
		Service: r.service, Images: r.service, Volumes: volumes, Sources: objects{},
		Facts: func(*corev1.Pod) podconfig.Facts {
			return podconfig.Facts{LogRoot: r.node.Path("logs"), MemoryBytes: 1 << 30}
		},
		Cgroups: podCgroups{tree},
		Owner:   "remote-test",
	})
}

func (r *realStack) close(ctx context.Context) error {
	if r.node == nil {
		return nil
	}
	return r.node.Close(ctx, func(ctx context.Context) error {
		if r.tree == nil {
			return nil
		}
		return r.tree.Cleanup(ctx)
	})
}

// podCgroups are real cgroups.
type podCgroups struct{ tree *cgroup.Tree }

func (c podCgroups) Make(_ context.Context, pod *corev1.Pod) error {
	_, err := c.tree.Ensure(pod.UID, lifecycle.QOSClass(pod), cgroup.PodResources(pod, lifecycle.QOSClass(pod)))
	return err
}

func (c podCgroups) Parent(pod *corev1.Pod) string {
	return c.tree.Path(pod.UID, lifecycle.QOSClass(pod))
}

func (c podCgroups) Remove(ctx context.Context, uid types.UID) error {
	for _, qos := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := c.tree.Remove(ctx, cgroup.Pod{UID: uid, QOS: qos, Path: c.tree.Path(uid, qos)}); err != nil {
			return err
		}
	}
	return nil
}

// The embedded runtime keeps the contract.
func TestEmbeddedRuntimeKeepsTheContract(t *testing.T) {
	r := real(t)
	podruntimetest.Run(t, func(*testing.T) podruntimetest.Target {
		return podruntimetest.Target{
			Runtime: r.runtime, Image: imagestore.DemoName, Has: []podruntimetest.Ability{podruntimetest.Programs},
		}
	})
}

// Another process finds what runs as it was, and goes on with it.
func TestAnotherProcessFindsWhatRuns(t *testing.T) {
	r := real(t)
	pod := simplePod()
	pod.UID = "another-process"
	c := &pod.Spec.Containers[0]
	c.Image, c.Args, c.TerminationMessagePath = imagestore.DemoName, []string{"exit", "5", "--after", "1s"}, "/dev/termination-log"
	do := func(rt *Runtime, a lifecycle.Action) podruntime.Result {
		t.Helper()
		result, err := rt.Do(t.Context(), pod, a)
		if err != nil {
			t.Fatalf("%s: %v", a.Key(), err)
		}
		return result
	}
	observe := func(rt *Runtime) lifecycle.Observed {
		t.Helper()
		o, err := rt.Observe(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		o.At = time.Time{}
		return o
	}
	do(r.runtime, lifecycle.Action{Kind: lifecycle.PrepareVolumes})
	do(r.runtime, lifecycle.Action{Kind: lifecycle.CreateSandbox})
	sandbox := observe(r.runtime).Sandboxes[0]
	start := lifecycle.Action{Kind: lifecycle.StartContainer, Container: "app", SandboxID: sandbox.ID}
	start.ImageRef = do(r.runtime, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"}).ImageRef
	first := do(r.runtime, start).ContainerID
	other, err := r.restarted()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(observe(r.runtime), observe(other)); diff != "" {
		t.Errorf("another process sees (-this +other)\n%s", diff)
	}
	if id := do(other, start).ContainerID; id != first {
		t.Errorf("the start is begun again: %s, then %s", first, id)
	}
	do(other, lifecycle.Action{Kind: lifecycle.CreateSandbox}) // as if its answer had been lost
	start.Attempt = 1
	for { // the first ends by itself
		if o := observe(other); o.Containers[0].State == lifecycle.ContainerExited {
			break
		}
		time.Sleep(50 * time.Millisecond)
		other.seen.outdate(pod.UID)
	}
	second := do(other, start).ContainerID
	do(other, lifecycle.Action{Kind: lifecycle.StopContainer, Container: "app", ContainerID: second, Until: time.Now()})
	if o := observe(other); len(o.Sandboxes) != 1 || len(o.Containers) != 2 {
		t.Errorf("in the end: %+v", o)
	}
	for _, id := range []string{first, second} {
		do(other, lifecycle.Action{Kind: lifecycle.RemoveContainer, Container: "app", ContainerID: id})
	}
	do(other, lifecycle.Action{Kind: lifecycle.RemoveSandbox, SandboxID: sandbox.ID})
	do(other, lifecycle.Action{Kind: lifecycle.RemovePod})
	if o := observe(other); o.Leftovers || len(o.Sandboxes) > 0 {
		t.Errorf("left: %+v", o)
	}
}

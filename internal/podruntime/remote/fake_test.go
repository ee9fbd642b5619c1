package remote

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/podconfig"
	"github.com/berth-run/berth/internal/volume"
)

// fakeCRI is the part of a CRI runtime that the tests here need: it counts what
// it is asked. It is safe for concurrent use.
type fakeCRI struct {
	criapi.RuntimeService
	criapi.ImageManagerService

	mu     sync.Mutex
	boxes  map[string]*runtimeapi.PodSandboxStatus
	conts  map[string]*runtimeapi.ContainerStatus
	calls  map[string]int
	err    error // of every call
	stops  []int64
	onStop func(ctx context.Context, id string, timeout int64) error
	onList func() // before the list of containers is returned
	stream func(ctx context.Context, out chan<- *runtimeapi.ContainerEventResponse, connected func()) error
	images map[string]*runtimeapi.Image
	onPull func(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error
}

func newFakeCRI() *fakeCRI {
	return &fakeCRI{
		boxes: map[string]*runtimeapi.PodSandboxStatus{}, conts: map[string]*runtimeapi.ContainerStatus{},
		calls: map[string]int{}, images: map[string]*runtimeapi.Image{},
	}
}

func (f *fakeCRI) call(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[name]++
	return f.err
}

func (f *fakeCRI) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

// change alters what the runtime holds.
func (f *fakeCRI) change(alter func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	alter()
}

func (f *fakeCRI) Close(context.Context) error { return nil }

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (f *fakeCRI) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := f.call("ListPodSandbox"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*runtimeapi.PodSandbox
	for _, b := range f.boxes {
		if matches(b.Labels, filter.GetLabelSelector()) {
			list = append(list, &runtimeapi.PodSandbox{Id: b.Id, Metadata: b.Metadata, State: b.State, Labels: b.Labels})
		}
	}
	return list, nil
}

func (f *fakeCRI) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := f.call("ListContainers"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	var list []*runtimeapi.Container
	for _, c := range f.conts {
		if matches(c.Labels, filter.GetLabelSelector()) {
			list = append(list, &runtimeapi.Container{Id: c.Id, PodSandboxId: "box", Metadata: c.Metadata, State: c.State, Labels: c.Labels})
		}
	}
	hook := f.onList
	f.mu.Unlock()
	if hook != nil {
		hook()
	}
	return list, nil
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := f.call("PodSandboxStatus"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.boxes[id]; ok {
		return &runtimeapi.PodSandboxStatusResponse{Status: b}, nil
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if err := f.call("ContainerStatus"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.conts[id]; ok {
		return &runtimeapi.ContainerStatusResponse{Status: c}, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *fakeCRI) StopContainer(ctx context.Context, id string, timeout int64) error {
	f.mu.Lock()
	f.stops = append(f.stops, timeout)
	hook := f.onStop
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx, id, timeout)
}

func (f *fakeCRI) GetContainerEvents(ctx context.Context, out chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	f.mu.Lock()
	stream := f.stream
	f.calls["GetContainerEvents"]++
	f.mu.Unlock()
	return stream(ctx, out, func() { connected(nil) })
}

func (f *fakeCRI) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := f.call("ImageStatus"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: f.images[image.Image]}, nil
}

func (f *fakeCRI) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if err := f.call("ListImages"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.images)), nil
}

func (f *fakeCRI) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	f.calls["PullImage"]++
	hook := f.onPull
	f.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, image.Image, auth); err != nil {
			return "", err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("sha256:%s", image.Image)
	f.images[image.Image] = &runtimeapi.Image{Id: id, Size: 4711}
	f.images[id] = f.images[image.Image]
	return id, nil
}

// plainVolumes are volumes without content.
type plainVolumes struct{ root string }

func (plainVolumes) Prepare(context.Context, *corev1.Pod) (map[string]podconfig.Volume, error) {
	return map[string]podconfig.Volume{}, nil
}
func (plainVolumes) SubPath(context.Context, types.UID, volume.SubPath) (string, error) {
	return "", nil
}
func (plainVolumes) Refresh(context.Context, *corev1.Pod) error { return nil }
func (v plainVolumes) RemovePod(_ context.Context, uid types.UID) error {
	return os.RemoveAll(v.Pod(uid))
}
func (v plainVolumes) Exists(uid types.UID) bool {
	_, err := os.Stat(v.Pod(uid))
	return err == nil
}
func (v plainVolumes) Pods() string                                              { return v.root }
func (v plainVolumes) Pod(uid types.UID) string                                  { return filepath.Join(v.root, string(uid)) }
func (v plainVolumes) HostsFile(uid types.UID) string                            { return filepath.Join(v.Pod(uid), "hosts") }
func (v plainVolumes) MakeTerminationLog(types.UID, string, int) (string, error) { return "", nil }

// onFake makes a Runtime on a fake.
func onFake(t *testing.T, f *fakeCRI, alter ...func(*Config)) *Runtime {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{
		Service: f, Images: imagesOf{f}, Volumes: plainVolumes{filepath.Join(dir, "pods")}, Sources: objects{},
		Facts: func(*corev1.Pod) podconfig.Facts { return podconfig.Facts{LogRoot: filepath.Join(dir, "logs")} },
	}
	for _, a := range alter {
		a(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// imagesOf picks the image half of a fake: both halves have a Close.
type imagesOf struct{ *fakeCRI }

func simplePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app"}}},
	}
}

// put makes the runtime hold a sandbox and a container of the pod.
func (f *fakeCRI) put(pod *corev1.Pod, state runtimeapi.ContainerState) {
	labels := map[string]string{podconfig.LabelPodUID: string(pod.UID), podconfig.LabelPodName: pod.Name,
		podconfig.LabelPodNamespace: pod.Namespace, podconfig.LabelContainerName: "app"}
	f.change(func() {
		f.boxes["box-"+string(pod.UID)] = &runtimeapi.PodSandboxStatus{Id: "box-" + string(pod.UID), Labels: labels,
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(pod.UID)}}
		f.conts["app-"+string(pod.UID)] = &runtimeapi.ContainerStatus{Id: "app-" + string(pod.UID), Labels: labels, State: state,
			Metadata: &runtimeapi.ContainerMetadata{}, StartedAt: time.Now().UnixNano()}
	})
}

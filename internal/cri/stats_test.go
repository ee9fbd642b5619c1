package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStats(t *testing.T) {
	f := newFixture(t)
	sb, id := f.runOne(t)
	c, err := f.ContainerStats(t.Context(), id)
	if err != nil || c.GetMemory().GetAvailableBytes().GetValue() != 20 || c.GetWritableLayer().GetUsedBytes().GetValue() != 4096 ||
		c.GetCpu().GetUsageCoreNanoSeconds().GetValue() != 3e9 || c.GetAttributes().GetLabels()["c"] != "app" {
		t.Errorf("stats %v, %v", c, err)
	}
	pod, err := f.PodSandboxStats(t.Context(), sb)
	if err != nil || pod.GetLinux().GetMemory().GetWorkingSetBytes().GetValue() != 10 || len(pod.GetLinux().GetContainers()) != 1 {
		t.Errorf("stats %v, %v", pod, err)
	}
	list, err := f.ListPodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "web"}})
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if err := f.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if c, err := f.ContainerStats(t.Context(), id); err != nil || c.GetCpu() != nil {
		t.Errorf("of a stopped container: %v, %v", c, err)
	}
	if list, err := f.ListContainerStats(t.Context(), nil); err != nil || len(list) != 0 {
		t.Errorf("of running containers: %v, %v", list, err)
	}
}

func TestRuntimeDescribesItself(t *testing.T) {
	f := newFixture(t)
	v, err := f.Version(t.Context(), "")
	if err != nil || v.GetRuntimeName() != "berth" || v.GetRuntimeApiVersion() != "v1" {
		t.Errorf("%v, %v", v, err)
	}
	st, err := f.Status(t.Context(), true)
	if err != nil || len(st.GetStatus().GetConditions()) != 2 || st.GetInfo()["info"] == "" {
		t.Fatalf("%v, %v", st, err)
	}
	for _, c := range st.GetStatus().GetConditions() {
		if !c.GetStatus() {
			t.Errorf("condition %v", c)
		}
	}
	conf, err := f.RuntimeConfig(t.Context())
	if err != nil || conf.GetLinux().GetCgroupDriver() != runtimeapi.CgroupDriver_CGROUPFS {
		t.Errorf("%v, %v", conf, err)
	}
	if err := f.CheckpointContainer(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("checkpoint: %v", err)
	}
	if err := f.CheckpointPod(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("checkpoint: %v", err)
	}
	if _, err := f.RestorePod(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("restore: %v", err)
	}
}

func TestImages(t *testing.T) {
	f := newFixture(t)
	f.images.image.Spec.Config.User = "1000:5"
	list, err := f.ListImages(t.Context(), nil)
	if err != nil || len(list) != 1 || list[0].GetUid().GetValue() != 1000 || list[0].GetRepoTags()[0] != testImage {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := f.ListImages(t.Context(), &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: "none/such:1"}}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	f.images.image.Spec.Config.User = "app"
	st, err := f.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: testImage}, true)
	if err != nil || st.GetImage().GetUsername() != "app" || st.GetImage().GetUid() != nil || st.GetInfo()["info"] == "" {
		t.Errorf("%v, %v", st, err)
	}
	if id, err := f.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: testImage}, nil, nil); err != nil || id != f.images.image.ID {
		t.Errorf("%s, %v", id, err)
	}
	if _, err := f.PullImage(t.Context(), nil, nil, nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("pull of nothing: %v", err)
	}
	fs, err := f.ImageFsInfo(t.Context())
	if err != nil || fs.GetImageFilesystems()[0].GetUsedBytes().GetValue() != 3 || fs.GetImageFilesystems()[0].GetInodesUsed().GetValue() != 7 {
		t.Errorf("%v, %v", fs, err)
	}
}

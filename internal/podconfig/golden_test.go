package podconfig

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/lifecycle"
)

var update = flag.Bool("update", false, "rewrite golden files")

// facts are those of a machine of 8 GiB that is in no cluster.
func facts() ContainerFacts {
	return ContainerFacts{
		Facts: Facts{
			LogRoot:       "/var/log/pods",
			CgroupParent:  "/berth/pod1234",
			HostDNS:       &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"example.org"}, Options: []string{"edns0"}},
			HostsFile:     []byte("127.0.0.1 localhost\n"),
			SeccompRoot:   "/var/lib/berth/seccomp",
			MemoryBytes:   8 << 30,
			Allocatable:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("7Gi")},
			HugePageSizes: []string{"2MB", "1GB"},
			UserNamespace: &runtimeapi.UserNamespace{
				Mode: runtimeapi.NamespaceMode_POD,
				Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}},
				Gids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}},
			},
		},
		ImageRef:           "sha256:abc",
		PodIPs:             []string{"10.88.0.2", "fd00::2"},
		HostIPs:            []string{"192.0.2.7"},
		HostsPath:          "/pods/1234/etc-hosts",
		TerminationLogPath: "/pods/1234/containers/app/0",
	}
}

// read decodes a pod from YAML.
func read(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// The golden files are read in the diff: testdata/NAME.yaml is a pod,
// NAME.golden what comes of it and of each of its containers.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pods in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pod := read(t, string(text))
			before := pod.DeepCopy()
			got := render(t, pod)
			if again := render(t, pod); again != got {
				t.Errorf("rendered twice and not the same:\n%s", cmp.Diff(got, again))
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got; -update rewrites):\n%s", diff)
			}
		})
	}
}

func render(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	f := facts()
	f.Volumes = map[string]Volume{}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.Image != nil:
			f.Volumes[v.Name] = Volume{Image: v.Image.Reference, ReadOnly: true}
		case v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil:
			f.Volumes[v.Name] = Volume{HostPath: "/volumes/" + v.Name, ReadOnly: true}
		default:
			f.Volumes[v.Name] = Volume{HostPath: "/volumes/" + v.Name, Relabel: v.HostPath == nil}
		}
	}
	f.ConfigMaps = map[string]*corev1.ConfigMap{"web": {Data: map[string]string{"mode": "fast", "level": "3"}}}
	f.Secrets = map[string]*corev1.Secret{"db": {Data: map[string][]byte{"password": []byte("s3cret")}}}
	f.EnvFiles = map[EnvFile][]byte{{"scratch", "env"}: []byte("# made by init\nTOKEN='a b'\n")}
	f.RecursiveReadOnly = true

	var b strings.Builder
	part := func(name string, value any, err error) {
		b.WriteString("---- " + name + "\n")
		if err != nil {
			b.WriteString("error: " + err.Error() + "\n")
			return
		}
		// Without what protobuf keeps for itself.
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(raw, &plain); err != nil {
			t.Fatal(err)
		}
		out, err := yaml.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(out)
	}
	sandbox, err := Sandbox(pod, f.Facts)
	part("sandbox", sandbox, err)
	hosts, err := HostsFile(pod, f.PodIPs, f.Facts)
	part("hosts", strings.Split(string(hosts), "\n"), err)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			subs, err := SubPaths(pod, c, f)
			if err != nil {
				part("sub-paths "+c.Name, nil, err)
			}
			f.SubPaths = map[int]string{}
			for index, sub := range subs {
				f.SubPaths[index] = "/subpaths/" + sub
			}
			config, err := Container(pod, c, f)
			if err == nil {
				if config.Annotations[AnnotationHash] != lifecycle.ContainerHash(c) {
					t.Errorf("container %s carries hash %q", c.Name, config.Annotations[AnnotationHash])
				}
				delete(config.Annotations, AnnotationHash) // lifecycle's business
			}
			part("container "+c.Name, config, err)
		}
	}
	return b.String()
}

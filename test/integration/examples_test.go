package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/manifest"
)

// examples say for each file what its comment promises. Pods are in the order of
// the file.
var examples = map[string]func(t *testing.T, pods []*pod){
	"hello.yaml": func(t *testing.T, pods []*pod) {
		pods[0].ready(t)
		pods[0].answers(t, "/", "hello from hello")
	},
	"sidecar.yaml": func(t *testing.T, pods []*pod) {
		s := pods[0].succeeded(t)
		pods[0].says(t, "main", "sidecar")
		pods[0].says(t, "proxy", "GET /hostname")
		proxy, main := container(s, "proxy"), container(s, "main")
		if proxy.State.Terminated == nil || proxy.State.Terminated.FinishedAt.Before(&main.State.Terminated.FinishedAt) {
			t.Errorf("the sidecar ended before the main container: %v", pods[0].story())
		}
	},
	"init-containers.yaml": func(t *testing.T, pods []*pod) {
		pods[0].succeeded(t)
		pods[0].says(t, "app", "made by prepare")
	},
	"job.yaml": func(t *testing.T, pods []*pod) {
		s := pods[0].succeeded(t)
		if n := container(s, "job").RestartCount; n < 1 {
			t.Errorf("the job succeeded at the first try")
		}
		pods[0].says(t, "job", "hello from job")
	},
	"probes.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		p.ready(t)
		p.post(t, "/readyz?ready=false")
		before := len(p.statuses())
		p.until(t, "unready", func(s *corev1.PodStatus) bool {
			return p.reportedSince(s, before-1) && !isReady(s) && container(s, "web").State.Running != nil
		})
		p.post(t, "/healthz?live=false")
		p.restarts(t, "web", 1)
	},
	"graceful-stop.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		p.ready(t)
		if code, out := p.exec(t, "web", "cat", "/notes/started"); code != 0 || !strings.Contains(out, "hello") {
			t.Errorf("postStart left %d %q", code, out)
		}
		p.stop(t)
		end := container(p.status(), "web").State.Terminated
		if end == nil || end.ExitCode != 0 {
			t.Errorf("it was not stopped gracefully: %s", p.story())
		}
	},
	"config.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		p.ready(t)
		p.answers(t, "/env?name=GREETING", "hello")
		p.answers(t, "/env?name=TOKEN", "s3cret")
		p.answers(t, "/env?name=MESSAGE", "hello, debug")
		if code, _ := p.get(t, "/env?name=MISSING"); code != http.StatusNotFound {
			t.Errorf("an optional key that is missing gives a variable")
		}
		p.prints(t, "web", "color = blue", "cat", "/etc/app/conf.d/app.ini")
		p.prints(t, "web", "s3cret", "cat", "/etc/secrets/token")
		p.prints(t, "web", "0400", "stat", "/etc/secrets/..data/token")
	},
	"downward-api.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		s := p.ready(t)
		p.answers(t, "/env?name=POD_NAME", "downward-api")
		p.answers(t, "/env?name=POD_IP", s.PodIP)
		p.answers(t, "/env?name=TIER", "demo")
		p.answers(t, "/env?name=CPUS", "500")
		p.prints(t, "web", `tier="demo"`, "cat", "/etc/podinfo/labels")
		p.prints(t, "web", "64", "cat", "/etc/podinfo/limit")
	},
	"resources.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		if s := p.restarts(t, "greedy", 1); container(s, "greedy").LastTerminationState.Terminated.ExitCode != 137 {
			t.Errorf("greedy ended otherwise: %s", p.story())
		}
		p.until(t, "OOMKilled", func(s *corev1.PodStatus) bool {
			last := container(s, "greedy").LastTerminationState.Terminated
			return last != nil && last.Reason == "OOMKilled"
		})
		if s := p.status(); container(s, "modest").RestartCount != 0 || s.QOSClass != corev1.PodQOSBurstable {
			t.Errorf("modest suffers, or the class is wrong: %s %s", s.QOSClass, p.story())
		}
	},
	"hardened.yaml": func(t *testing.T, pods []*pod) {
		pods[0].succeeded(t)
		for _, text := range []string{"Uid: 1000 ", "Gid: 1000 ", "Groups: 1000 2000", "CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"} {
			pods[0].says(t, "app", text)
		}
	},
	"host-port.yaml": func(t *testing.T, pods []*pod) {
		pods[0].ready(t)
		answers(t, "http://127.0.0.1:18080/hostname", "host-port")
	},
	"host-network.yaml": func(t *testing.T, pods []*pod) {
		if s := pods[0].ready(t); s.PodIP != s.HostIP {
			t.Errorf("the pod has address %s, the machine %s", s.PodIP, s.HostIP)
		}
		answers(t, "http://127.0.0.1:18081/", "hello")
	},
	"shared-processes.yaml": func(t *testing.T, pods []*pod) {
		pods[0].ready(t)
		pods[0].prints(t, "watcher", "pause", "cat", "/proc/1/cmdline")
	},
	"shared-volume.yaml": func(t *testing.T, pods []*pod) { pods[0].succeeded(t) },
	"restart-rules.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		p.ready(t)
		p.answers(t, "/exit?code=42", "ending with 42")
		p.restarts(t, "worker", 1)
		p.answers(t, "/exit?code=7", "ending with 7")
		if end := container(p.failed(t), "worker").State.Terminated; end.ExitCode != 7 {
			t.Errorf("ended with %d", end.ExitCode)
		}
	},
	"user-namespace.yaml": func(t *testing.T, pods []*pod) {
		p := pods[0]
		p.ready(t)
		p.prints(t, "web", "uid=0", "id")
		p.prints(t, "web", "65536\n", "cat", "/proc/self/uid_map")
	},
	"projected.yaml": func(t *testing.T, pods []*pod) {
		pods[0].succeeded(t)
		for _, text := range []string{"blue", "open sesame", `app="projected"`} {
			pods[0].says(t, "app", text)
		}
	},
	"two-pods.yaml": func(t *testing.T, pods []*pod) {
		pods[0].ready(t)
		pods[1].succeeded(t)
		pods[1].says(t, "client", "hello from server")
	},
}

const examplesDir = "../../examples"

func TestEachExampleDoesWhatItsCommentSays(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examplesDir, "*"))
	if err != nil || len(files) < 14 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			does, ok := examples[name]
			if !ok {
				t.Fatalf("%s has no test", path)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			if !strings.HasPrefix(text, "# ") || !strings.Contains(text, "berth run examples/"+name) {
				t.Errorf("%s does not begin with a comment that says what to try", path)
			}
			_, problems := manifest.Decode(path, b)
			if len(problems) > 0 {
				t.Errorf("berth warns of it: %v", problems)
			}
			t.Parallel()
			pods := sharedNode(t).apply(t, text)
			does(t, pods)
			for _, p := range pods {
				p.stop(t)
			}
		})
	}
	for name := range examples {
		if !slices.Contains(files, filepath.Join(examplesDir, name)) {
			t.Errorf("there is no %s", name)
		}
	}
}

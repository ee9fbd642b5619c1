package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What crictl must tell of a runtime, with a pod of a web server and one of shells.
func TestCrictl(t *testing.T) {
	n := newNode(t)
	events := n.watchEvents(t)
	t.Run("info", func(t *testing.T) { n.info(t) })
	t.Run("pull and images", func(t *testing.T) { n.images(t) })

	web := n.run(t, "web", "server", map[string]any{
		"image": map[string]any{"image": nginxImage},
		"linux": map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 64 << 20, "cpu_shares": 512}},
	})
	shells := n.run(t, "shells", "shell", map[string]any{
		"image": map[string]any{"image": busyboxImage}, "command": []string{"sh"}, "stdin": true, "stdin_once": true,
	})
	t.Run("ps, pods, inspect and inspectp", func(t *testing.T) { n.lists(t, web) })
	t.Run("stats and statsp", func(t *testing.T) { n.stats(t, web) })
	t.Run("update", func(t *testing.T) { n.update(t, web) })
	t.Run("exec", func(t *testing.T) { n.exec(t, web) })
	for _, transport := range []string{"spdy", "websocket"} {
		t.Run("exec with a terminal over "+transport, func(t *testing.T) { n.execTerminal(t, web, transport) })
		t.Run("port-forward over "+transport, func(t *testing.T) { n.portForward(t, web, transport) })
	}
	t.Run("logs", func(t *testing.T) { n.logs(t, shells) })
	t.Run("attach", func(t *testing.T) { n.attach(t, shells) })
	t.Run("rmp", func(t *testing.T) { n.removePods(t) })
	t.Run("events", func(t *testing.T) { events.check(t, web) })
}

// pod is a sandbox with one container.
type pod struct {
	name, container string // names
	id, containerID string
	config          string // file of the sandbox's configuration
	logs            string // folder
}

// run has crictl run a container in a sandbox of its own.
func (n *node) run(t *testing.T, name, container string, config map[string]any) pod {
	t.Helper()
	p := pod{name: name, container: container, logs: filepath.Join(t.TempDir(), name)}
	p.config = n.write(t, name+".json", map[string]any{
		"metadata":      map[string]any{"name": name, "namespace": "shop", "uid": "uid-of-" + name, "attempt": 1},
		"log_directory": p.logs, "labels": map[string]string{"app": name},
		"linux": map[string]any{},
	})
	p.containerID = n.call(t, "run", n.container(t, p, container, config), p.config)
	p.id = n.call(t, "pods", "--quiet", "--no-trunc", "--name", "^"+name+"$")
	return p
}

// container writes the configuration of a container.
func (n *node) container(t *testing.T, p pod, name string, config map[string]any) string {
	t.Helper()
	config["metadata"] = map[string]any{"name": name, "attempt": 2}
	config["log_path"] = name + ".log"
	// crictl takes names of pods from the labels that a kubelet sets.
	config["labels"] = map[string]string{"io.kubernetes.pod.name": p.name, "io.kubernetes.pod.namespace": "shop"}
	if config["linux"] == nil {
		config["linux"] = map[string]any{}
	}
	return n.write(t, p.name+"-"+name+".json", config)
}

func (n *node) write(t *testing.T, name string, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(n.config), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ask has crictl print JSON into a value.
func (n *node) ask(t *testing.T, into any, args ...string) {
	t.Helper()
	out := n.call(t, args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("crictl %s: %v in\n%s", strings.Join(args, " "), err, out)
	}
}

// expect compares what crictl told with what is right, each under its name.
func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %q, want %q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// row checks that the table has a row with all of these cells, in this order.
func row(t *testing.T, table string, cells ...string) {
	t.Helper()
	for line := range strings.Lines(table) {
		rest, fits := line, true
		for _, cell := range cells {
			_, after, found := strings.Cut(rest, cell)
			rest, fits = after, fits && found
		}
		if fits {
			return
		}
	}
	t.Errorf("no row with %q in\n%s", cells, table)
}

// short is an id as tables show it.
func short(id string) string { return strings.TrimPrefix(id, "sha256:")[:13] }

func (n *node) info(t *testing.T) {
	var info struct {
		Status struct {
			Conditions []struct {
				Type   string
				Status bool
			}
		}
		RuntimeHandlers []struct {
			Name     string
			Features map[string]bool
		}
	}
	n.ask(t, &info, "info")
	ready := map[string]bool{}
	for _, c := range info.Status.Conditions {
		ready[c.Type] = c.Status
	}
	expect(t, "conditions", ready, map[string]bool{"RuntimeReady": true, "NetworkReady": true})
	found := false
	for _, h := range info.RuntimeHandlers {
		found = found || h.Name == "" && h.Features["recursive_read_only_mounts"] && h.Features["user_namespaces"]
	}
	if !found {
		t.Errorf("handlers %+v, want a default one with recursive read-only mounts and user namespaces", info.RuntimeHandlers)
	}
	row(t, n.call(t, "version"), "RuntimeName:", "berth")
}

func (n *node) images(t *testing.T) {
	pulled := n.call(t, "pull", busyboxImage)
	id := strings.TrimPrefix(pulled, "Image is up to date for ")
	if !strings.HasPrefix(id, "sha256:") || len(id) != len("sha256:")+64 {
		t.Fatalf("crictl pull: %q, want the image's id", pulled)
	}
	row(t, n.call(t, "images"), strings.TrimSuffix(busyboxImage, ":1.29-2"), "1.29-2", short(id))
	var image struct {
		Status struct {
			ID          string
			RepoTags    []string
			RepoDigests []string
			Size        string
		}
	}
	n.ask(t, &image, "inspecti", busyboxImage)
	expect(t, "id", image.Status.ID, id)
	expect(t, "tags", image.Status.RepoTags, []string{busyboxImage})
	if len(image.Status.RepoDigests) != 1 || !strings.HasPrefix(image.Status.RepoDigests[0], strings.TrimSuffix(busyboxImage, ":1.29-2")+"@sha256:") {
		t.Errorf("digests %q", image.Status.RepoDigests)
	}
	if size, err := strconv.Atoi(image.Status.Size); err != nil || size < 100_000 {
		t.Errorf("size %q, want at least that of busybox", image.Status.Size)
	}
	var fs struct {
		Status struct {
			ImageFilesystems []struct {
				FsID      struct{ Mountpoint string }
				UsedBytes struct{ Value string }
			}
		}
	}
	n.ask(t, &fs, "imagefsinfo")
	if len(fs.Status.ImageFilesystems) != 1 {
		t.Fatalf("image file systems: %+v, want one", fs)
	}
	if at := fs.Status.ImageFilesystems[0].FsID.Mountpoint; !strings.HasPrefix(at, n.root+"/") {
		t.Errorf("images are at %q, want below %s", at, n.root)
	}
	if used, err := strconv.Atoi(fs.Status.ImageFilesystems[0].UsedBytes.Value); err != nil || used < 100_000 {
		t.Errorf("images use %q bytes, want at least busybox's", fs.Status.ImageFilesystems[0].UsedBytes.Value)
	}
}

func (n *node) lists(t *testing.T, web pod) {
	row(t, n.call(t, "ps"), short(web.containerID), "Running", "server", "2", short(web.id), "web", "shop")
	row(t, n.call(t, "pods"), short(web.id), "Ready", "web", "shop", "1")
	expect(t, "containers of one label", n.call(t, "ps", "--quiet", "--no-trunc", "--label", "io.kubernetes.pod.name=web"), web.containerID)

	var container struct {
		Status struct {
			State, LogPath, ImageID string
			Image                   struct{ Image string }
			Metadata                struct {
				Name    string
				Attempt int
			}
			Resources struct {
				Linux struct{ CPUShares, MemoryLimitInBytes string }
			}
		}
		Info struct{ PID int }
	}
	n.ask(t, &container, "inspect", web.containerID)
	s := container.Status
	expect(t, "container", []any{s.State, s.Metadata.Name, s.Metadata.Attempt, s.Image.Image, s.LogPath, s.Resources.Linux.CPUShares, s.Resources.Linux.MemoryLimitInBytes},
		[]any{"CONTAINER_RUNNING", "server", 2, nginxImage, filepath.Join(web.logs, "server.log"), 512, 64 << 20})
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", container.Info.PID)); string(name) != "nginx\n" {
		t.Errorf("process %d is %q (%v), want nginx", container.Info.PID, name, err)
	}

	var sandbox struct {
		Status struct {
			State    string
			Metadata struct{ Name, Namespace, UID string }
			Network  struct{ IP string }
			Labels   map[string]string
		}
	}
	n.ask(t, &sandbox, "inspectp", web.id)
	p := sandbox.Status
	expect(t, "sandbox", []any{p.State, p.Metadata.Name, p.Metadata.Namespace, p.Metadata.UID, p.Labels["app"]},
		[]any{"SANDBOX_READY", "web", "shop", "uid-of-web", "web"})
	expect(t, "page at the pod's address", get(t, "http://"+p.Network.IP), "this is nginx\n")
}

func (n *node) stats(t *testing.T, web pod) {
	n.exec1(t, web, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done") // some processor time
	var stats struct {
		Stats []struct {
			Attributes struct{ ID string }
			CPU        struct{ UsageCoreNanoSeconds struct{ Value string } }
			Memory     struct{ WorkingSetBytes struct{ Value string } }
		}
	}
	n.ask(t, &stats, "stats", "-o", "json", web.containerID)
	if len(stats.Stats) != 1 || stats.Stats[0].Attributes.ID != web.containerID {
		t.Fatalf("stats %+v, want those of the container", stats)
	}
	between(t, "working set", stats.Stats[0].Memory.WorkingSetBytes.Value, 100_000, 64<<20)
	between(t, "processor time", stats.Stats[0].CPU.UsageCoreNanoSeconds.Value, 1_000_000, 1e12)
	row(t, n.call(t, "stats"), short(web.containerID), "server")

	var pods struct {
		Stats []struct {
			Attributes struct{ ID string }
			Linux      struct {
				Memory  struct{ WorkingSetBytes struct{ Value string } }
				Network struct {
					DefaultInterface struct{ RxBytes struct{ Value string } }
				}
				Containers []struct{ Attributes struct{ ID string } }
			}
		}
	}
	n.ask(t, &pods, "statsp", "-o", "json", "--id", web.id)
	if len(pods.Stats) != 1 || len(pods.Stats[0].Linux.Containers) != 1 {
		t.Fatalf("stats %+v, want those of one pod with one container", pods)
	}
	linux := pods.Stats[0].Linux
	expect(t, "ids", []string{pods.Stats[0].Attributes.ID, linux.Containers[0].Attributes.ID}, []string{web.id, web.containerID})
	between(t, "working set of the pod", linux.Memory.WorkingSetBytes.Value, 100_000, 1<<30)
	between(t, "bytes the pod received", linux.Network.DefaultInterface.RxBytes.Value, 100, 1<<30) // a request, at least
	row(t, n.call(t, "statsp"), "web", short(web.id))
}

func between(t *testing.T, what, value string, least, most float64) {
	t.Helper()
	if v, err := strconv.ParseFloat(value, 64); err != nil || v < least || v > most {
		t.Errorf("%s: %q, want between %.0f and %.0f", what, value, least, most)
	}
}

func (n *node) update(t *testing.T, web pod) {
	n.call(t, "update", "--memory", strconv.Itoa(96<<20), "--cpu-share", "256", web.containerID)
	var container struct {
		Status struct {
			Resources struct {
				Linux struct{ CPUShares, MemoryLimitInBytes string }
			}
		}
	}
	n.ask(t, &container, "inspect", web.containerID)
	r := container.Status.Resources.Linux
	expect(t, "resources", []string{r.CPUShares, r.MemoryLimitInBytes}, []any{256, 96 << 20})
	limit := n.exec1(t, web, "sh", "-c", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null || true")
	expect(t, "limit that the kernel has", limit, 96<<20)
}

func (n *node) removePods(t *testing.T) {
	n.call(t, "rmp", "--force", "--all")
	expect(t, "pods that are left", n.call(t, "pods", "--quiet"), "")
	expect(t, "containers that are left", n.call(t, "ps", "--all", "--quiet"), "")
	n.call(t, "rmi", busyboxImage)
	if images := n.call(t, "images"); strings.Contains(images, "busybox") || !strings.Contains(images, "nginx") {
		t.Errorf("images after busybox's was removed:\n%s", images)
	}
}

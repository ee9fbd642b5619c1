package cri

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/testutil/crinode"
	"github.com/berth-run/berth/internal/testutil/ociruntimes"
)

// realStack is a Service over the real shim, image store and network. All
// integration tests share one, since building and starting it takes a while.
type realStack struct {
	*Service
	once sync.Once
	err  error
	node *crinode.Node

	bridge, cidr string
	programs     bool // it has handlers that are OCI runtimes, named as those are
}

var (
	stack        = realStack{bridge: "bcritest", cidr: "10.213.0.0/16"}
	programStack = realStack{bridge: "bcriprog", cidr: "10.212.0.0/16", programs: true}
)

const insideImage = "berth.local/inside:1"

// real gives the shared stack, or skips the test if this machine can't run it.
func real(t testing.TB) *realStack {
	t.Helper()
	crinode.Needs(t)
	s := &stack
	if handlerOf(t) != "" {
		s = &programStack
	}
	s.once.Do(func() { s.err = s.open(context.Background()) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s
}

// handlerOf is the runtime handler that a test is about, as its name says; empty:
// the default.
func handlerOf(t testing.TB) string {
	_, rest, about := strings.Cut(t.Name(), "/by-")
	if !about {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func (r *realStack) open(ctx context.Context) (err error) {
	r.node, err = crinode.Open(ctx, crinode.Config{
		Bridge: r.bridge, CIDR: netip.MustParsePrefix(r.cidr),
		Programs: map[string]string{"inside": "./testdata/inside"},
	})
	if err != nil {
		return err
	}
	if err := r.putImage(ctx); err != nil {
		return err
	}
	return r.serve(ctx)
}

// serve opens a Service on what is there.
func (r *realStack) serve(ctx context.Context) (err error) {
	n := r.node
	var handlers []RuntimeHandler
	if r.programs {
		for _, name := range ociruntimes.Names {
			path, err := ociruntimes.Find(n.Dir, name)
			if err != nil {
				return err
			}
			handlers = append(handlers, RuntimeHandler{Name: name, Binary: path})
		}
	}
	r.Service, err = New(Config{
		Handlers: handlers,
		Run:      n.Path("run"), Shim: n.Shim, Images: n.Images, Network: n.Network,
		ShimBinary: n.ShimBinary(), CgroupRoot: n.Cgroup, ImagesDir: n.Path("images"),
		LogMaxBytes: 1 << 20, LogMaxFiles: 2,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return n.Serve(ctx, r.Service)
}

// restart kills the agent, as far as that can be done within a process.
func (r *realStack) restart(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.node.Restart(t.Context()), r.serve(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func (r *realStack) close(ctx context.Context) error {
	if r.node == nil {
		return nil
	}
	return r.node.Close(ctx)
}

// putImage makes an image of the program inside, with users and groups.
func (r *realStack) putImage(ctx context.Context) error {
	program, err := os.ReadFile(r.node.Path("inside"))
	if err != nil {
		return err
	}
	img := imgspec.Image{Platform: imgspec.Platform{OS: "linux", Architecture: goArch()}}
	img.Config = imgspec.ImageConfig{
		Entrypoint: []string{"/inside"}, Cmd: []string{"report"},
		Env: []string{"FROM_IMAGE=yes", "BOTH=image"}, WorkingDir: "/srv/here", User: "app",
		Volumes: map[string]struct{}{"/data": {}, "/new/volume": {}},
	}
	_, err = r.node.Images.Put(ctx, imagestore.PutRequest{Name: insideImage, Config: img, Layer: func(w io.Writer) error {
		tw := tar.NewWriter(w)
		for _, f := range []struct {
			name, content string
			mode          int64
			uid           int
		}{
			{"etc/", "", 0o755, 0},
			{"etc/passwd", "root:x:0:0::/:/\napp:x:1000:1001::/:/\nother:x:2000:2000::/:/\n", 0o644, 0},
			{"etc/group", "root:x:0:\napp:x:1001:\nextra:x:1500:app,other\n", 0o644, 0},
			{"tmp/", "", 0o777, 0},
			{"data/", "", 0o755, 1000},
			{"data/model", "weights", 0o644, 1000},
			{"not-executable", "#!", 0o644, 0},
			{"inside", string(program), 0o755, 0},
		} {
			h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Uid: f.uid, Gid: f.uid, Typeflag: tar.TypeReg}
			if strings.HasSuffix(f.name, "/") {
				h.Typeflag = tar.TypeDir
			}
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			if _, err := io.WriteString(tw, f.content); err != nil {
				return err
			}
		}
		return tw.Close()
	}})
	return err
}

// pod is a sandbox of a test; it goes with the test.
type pod struct {
	*realStack
	t      testing.TB
	id     string
	config *runtimeapi.PodSandboxConfig
	logs   string
}

func (r *realStack) pod(t testing.TB, alter ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", " ", "-", ",", "", ":", "").Replace(t.Name()))
	p := &pod{realStack: r, t: t, logs: t.TempDir(), config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "test", Uid: newID()},
		Hostname:     "inside",
		LogDirectory: "",
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: r.node.Cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}}
	p.config.LogDirectory = p.logs
	for _, f := range alter {
		f(p.config)
	}
	var err error
	if p.id, err = r.RunPodSandbox(context.Background(), p.config, handlerOf(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.RemovePodSandbox(context.Background(), p.id); err != nil {
			t.Errorf("cannot remove the sandbox: %v", err)
		}
	})
	return p
}

// create makes a container that runs the program inside with args.
func (p *pod) create(alter func(*runtimeapi.ContainerConfig), args ...string) string {
	p.t.Helper()
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c" + newID()[:8]},
		Image:    &runtimeapi.ImageSpec{Image: insideImage},
		Args:     args,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions,
		}},
	}
	c.LogPath = c.Metadata.Name + ".log"
	if alter != nil {
		alter(c)
	}
	id, err := p.CreateContainer(context.Background(), p.id, c, p.config)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p *pod) start(alter func(*runtimeapi.ContainerConfig), args ...string) string {
	p.t.Helper()
	id := p.create(alter, args...)
	if err := p.StartContainer(context.Background(), id); err != nil {
		p.t.Fatal(err)
	}
	return id
}

// status of a container.
func (p *pod) status(id string) *runtimeapi.ContainerStatus {
	p.t.Helper()
	r, err := p.ContainerStatus(context.Background(), id, false)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.GetStatus()
}

// await waits for a container's end.
func (p *pod) await(id string) *runtimeapi.ContainerStatus {
	p.t.Helper()
	c, err := p.container(id)
	if err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-c.exited:
	case <-time.After(30 * time.Second):
		list, err := p.node.Shim.List(context.Background())
		i := slices.IndexFunc(list, func(s shim.Status) bool { return s.ID == id })
		if i >= 0 {
			list = list[i : i+1]
		}
		p.t.Fatalf("container does not end; log: %s; in the shim: %+v (%v)", p.log(id), list, err)
	}
	return p.status(id)
}

// log gives what a container wrote, without the format's prefixes.
func (p *pod) log(id string) string {
	p.t.Helper()
	raw, err := os.ReadFile(p.status(id).GetLogPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	var b strings.Builder
	for line := range bytes.Lines(raw) {
		parts := bytes.SplitN(line, []byte(" "), 4)
		text := parts[len(parts)-1]
		if len(parts) == 4 && string(parts[2]) == "P" {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		b.Write(text)
	}
	return b.String()
}

// awaitLog waits until a container has written text.
func (p *pod) awaitLog(id, text string) {
	p.t.Helper()
	for range 3000 {
		if strings.Contains(p.log(id), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatalf("container did not write %q; log: %s; status %v", text, p.log(id), p.status(id))
}

// view is what the program inside reports.
type view struct {
	Status, Namespaces, Mounts               map[string]string
	Args, Env, Processes, Devices, Addresses []string
	Cwd, Hostname, OOMScore, Cgroup, UIDMap  string
	PID                                      int
}

// report runs a container and gives what it sees.
func (p *pod) report(alter func(*runtimeapi.ContainerConfig)) view {
	p.t.Helper()
	id := p.start(alter, "report")
	if st := p.await(id); st.GetExitCode() != 0 {
		p.t.Fatalf("status %v, log %s", st, p.log(id))
	}
	return p.parse(p.log(id))
}

func (p *pod) parse(text string) (v view) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		p.t.Fatalf("%v in %q", err, text)
	}
	return v
}

// exec runs the program inside a running container.
func (p *pod) exec(id string, args ...string) string {
	p.t.Helper()
	out, errOut, err := p.ExecSync(context.Background(), id, append([]string{"/inside"}, args...), 30*time.Second)
	if err != nil {
		p.t.Fatalf("%v: %s", err, errOut)
	}
	return string(out)
}

func (v view) env(key string) string {
	i := slices.IndexFunc(v.Env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") })
	if i < 0 {
		return ""
	}
	return strings.TrimPrefix(v.Env[i], key+"=")
}

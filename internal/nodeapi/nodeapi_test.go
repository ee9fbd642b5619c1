package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/cri/imagestore"
	"github.com/berth-run/berth/internal/socket"
)

// fakeAgent remembers what it was asked. Safe for concurrent use.
type fakeAgent struct {
	logs string // folder of log files: UID/CONTAINER

	mu      sync.Mutex
	pods    []*corev1.Pod
	calls   []string
	updates []agent.Update
	changed chan struct{}
}

func (f *fakeAgent) call(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeAgent) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fakeAgent) put(u agent.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates = append(f.updates, u)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAgent) Apply(_ context.Context, o agent.Objects) (refs []agent.Ref, err error) {
	for _, p := range o.Pods {
		if p.Name == "bad" {
			return nil, errors.New("cannot take pod bad")
		}
		refs = append(refs, agent.Ref{Namespace: p.Namespace, Name: p.Name, UID: "new"})
	}
	f.call("apply %d pods, %d configmaps, secret %s", len(o.Pods), len(o.ConfigMaps), o.Secrets[0].Data["key"])
	return refs, nil
}

func (f *fakeAgent) Told(uids []types.UID) { f.call("told %v", uids) }

func (f *fakeAgent) Pods() []*corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pods)
}

func (f *fakeAgent) Watch(ctx context.Context, fn func(agent.Update, int) error) error {
	for i := 0; ; i++ {
		for {
			f.mu.Lock()
			n, changed := len(f.updates), f.changed
			f.mu.Unlock()
			if i < n {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		f.mu.Lock()
		u := f.updates[i]
		f.mu.Unlock()
		if err := fn(u, i); err != nil {
			return err
		}
	}
}

func graceText(g *int64) string {
	if g == nil {
		return "own"
	}
	return fmt.Sprint(*g)
}

func (f *fakeAgent) Stop(ns, name string, g *int64) (agent.Ref, error) {
	f.call("stop %s/%s %s", ns, name, graceText(g))
	return agent.Ref{Namespace: ns, Name: name, UID: "u"}, nil
}

func (f *fakeAgent) Delete(ns, name string, g *int64) (agent.Ref, error) {
	f.call("delete %s/%s %s", ns, name, graceText(g))
	if name == "none" {
		return agent.Ref{}, fmt.Errorf("%w: %s/%s", agent.ErrNoPod, ns, name)
	}
	return agent.Ref{Namespace: ns, Name: name, UID: "u"}, nil
}

func (f *fakeAgent) DeleteUID(uid types.UID, g *int64) bool {
	f.call("delete uid %s %s", uid, graceText(g))
	return uid == "u"
}

func (f *fakeAgent) TimeOut(uid types.UID, waited time.Duration, why string, g *int64) bool {
	f.call("time out uid %s after %s (%s) %s", uid, waited, why, graceText(g))
	return uid == "u"
}

func (f *fakeAgent) Describe(uids []types.UID) (all []agent.Description) {
	for _, p := range f.Pods() {
		if slices.Contains(uids, p.UID) {
			all = append(all, agent.Description{Pod: p, Events: []agent.PastEvent{{Count: 3}}})
		}
	}
	return all
}

func (f *fakeAgent) Trouble() error { return nil }

func (f *fakeAgent) Keep(context.Context) error { return nil }

func (f *fakeAgent) Known(uid types.UID) bool {
	return slices.ContainsFunc(f.Pods(), func(p *corev1.Pod) bool { return p.UID == uid })
}

func (f *fakeAgent) LogDir(uid types.UID, container string) (string, bool) {
	return filepath.Join(f.logs, string(uid), container), f.Known(uid)
}

func (f *fakeAgent) Exec(_ context.Context, ns, pod, c string, r agent.StreamRequest) (*url.URL, error) {
	f.call("exec %s/%s/%s %v %t", ns, pod, c, r.Command, r.TTY)
	return nil, fmt.Errorf("%w: %s", agent.ErrNoContainer, c)
}

func (f *fakeAgent) Attach(_ context.Context, _, _, c string, _ agent.StreamRequest) (*url.URL, error) {
	return nil, fmt.Errorf("%w: %s", agent.ErrNoContainer, c)
}

func (f *fakeAgent) PortForward(_ context.Context, _, pod string, _ []int32) (*url.URL, error) {
	return nil, fmt.Errorf("%w: %s", agent.ErrNoPod, pod)
}

func (f *fakeAgent) Images(context.Context) ([]imagestore.Image, error) {
	return []imagestore.Image{{ID: "sha256:1", Tags: []string{"a:1"}, Size: 7}}, nil
}

func (f *fakeAgent) PullImage(_ context.Context, ref string, progress func(imagestore.Progress)) (imagestore.Image, error) {
	progress(imagestore.Progress{Phase: imagestore.Downloading, DoneBytes: 1, TotalBytes: 2})
	if ref == "none" {
		return imagestore.Image{}, imagestore.ErrMissing
	}
	return imagestore.Image{ID: "sha256:2"}, nil
}

func (f *fakeAgent) ImportImages(_ context.Context, path string) ([]imagestore.Image, error) {
	return []imagestore.Image{{ID: path}}, nil
}

func (f *fakeAgent) RemoveImage(_ context.Context, ref string) error {
	f.call("rmi %s", ref)
	if ref == "none" {
		return imagestore.ErrNotFound
	}
	return nil
}

func (f *fakeAgent) PruneImages(_ context.Context, all bool) (imagestore.Collected, error) {
	return imagestore.Collected{FreedBytes: 5, Images: []imagestore.Victim{{ID: fmt.Sprint(all)}}}, nil
}

// serve brings up an API on a socket and returns a client of it. stop ends the
// serving.
func serve(t *testing.T, f *fakeAgent) (c *Client, stop func()) {
	t.Helper()
	f.changed = make(chan struct{})
	// Longer than a socket's address may be.
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 25), "berth.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Agent: f, Info: Version{Version: "v0", PID: 42}, Leave: func() { f.call("leave") }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve returns %v", err)
		}
		l.Close()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	t.Cleanup(stop)
	c = NewClient(path)
	t.Cleanup(c.Close)
	return c, stop
}

func podOf(name string, uid types.UID, s corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "later"}}},
		Status:     s,
	}
}

func TestRequestsReachTheAgent(t *testing.T) {
	f := &fakeAgent{pods: []*corev1.Pod{podOf("web", "u", corev1.PodStatus{Phase: corev1.PodRunning})}}
	c, _ := serve(t, f)
	ctx := t.Context()
	pods, err := c.Pods(ctx)
	if err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
		t.Errorf("pods: %v, %v", pods, err)
	}
	if v, err := c.Version(ctx); err != nil || v.PID != 42 {
		t.Errorf("version: %+v, %v", v, err)
	}
	refs, err := c.Apply(ctx, agent.Objects{
		Pods:    []*corev1.Pod{podOf("a", "", corev1.PodStatus{}), podOf("b", "", corev1.PodStatus{})},
		Secrets: []*corev1.Secret{{Data: map[string][]byte{"key": []byte("value")}}},
	}, "")
	if err != nil || len(refs) != 2 || refs[1].Name != "b" {
		t.Errorf("apply: %v, %v", refs, err)
	}
	zero, five := int64(0), int64(5)
	_, err1 := c.Stop(ctx, "default", "web", &five)
	_, err2 := c.Delete(ctx, "default", "web", nil)
	err3 := c.DeleteRef(ctx, agent.Ref{Namespace: "default", Name: "web", UID: "u"}, &zero)
	err4 := c.RemoveImage(ctx, "example.com/team/app:1@sha256:00")
	err5 := c.Leave(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Error(err)
	}
	want := []string{
		"apply 2 pods, 0 configmaps, secret value", "stop default/web 5", "delete default/web own", "delete uid u 0",
		"rmi example.com/team/app:1@sha256:00", "leave",
	}
	// The agent is asked to leave after the answer is out.
	for deadline := time.Now().Add(10 * time.Second); len(f.asked()) < len(want) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if got := f.asked(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	if list, err := c.Images(ctx); err != nil || len(list) != 1 || list[0].SizeBytes != 7 {
		t.Errorf("images: %v, %v", list, err)
	}
	progress := 0
	if img, err := c.PullImage(ctx, "a", func(p Pull) { progress += int(p.DoneBytes) }); err != nil || img.ID != "sha256:2" || progress != 1 {
		t.Errorf("pull: %v, %v, progress %d", img, err, progress)
	}
	if p, err := c.PruneImages(ctx, true); err != nil || p.FreedBytes != 5 || p.Images[0] != "true" {
		t.Errorf("prune: %v, %v", p, err)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	c, _ := serve(t, &fakeAgent{})
	ctx := t.Context()
	_, noPod := c.Delete(ctx, "default", "none", nil)
	_, bad := c.Apply(ctx, agent.Objects{Pods: []*corev1.Pod{podOf("bad", "", corev1.PodStatus{})}}, "")
	_, relative := c.ImportImages(ctx, "relative")
	_, noLog := c.ContainerLog(ctx, ContainerLogRequest{Namespace: "default", Pod: "none", Container: "app"})
	for what, e := range map[string]struct {
		err  error
		code int
		text string
	}{
		"delete of a pod that is not there": {noPod, 404, "no such pod"},
		"another pod of the name":           {c.DeleteRef(ctx, agent.Ref{Namespace: "default", Name: "web", UID: "old"}, nil), 404, "no such pod"},
		"an apply that fails":               {bad, 500, "cannot take pod bad"},
		"an image that is not there":        {c.RemoveImage(ctx, "none"), 404, "not found"},
		"a path that is relative":           {relative, 400, "not absolute"},
		"the log of a pod that isn't there": {noLog, 404, "no such pod"},
	} {
		var answer *Error
		if !errors.As(e.err, &answer) || answer.Code != e.code || !strings.Contains(answer.Message, e.text) {
			t.Errorf("%s: %v", what, e.err)
		}
	}
	if _, err := c.PullImage(ctx, "none", func(Pull) {}); err == nil || !strings.Contains(err.Error(), "not found in the registry") {
		t.Errorf("pull: %v", err)
	}
}

func TestWatchTellsTheStateThenChangesAndItsEnd(t *testing.T) {
	f := &fakeAgent{}
	c, stop := serve(t, f)
	f.put(agent.Update{Pod: agent.Ref{Name: "web", UID: "u"}, Kind: agent.StatusUpdate, Status: &corev1.PodStatus{Phase: corev1.PodPending}})
	var got []string
	ended := make(chan error, 1)
	begun, second := make(chan struct{}), make(chan struct{})
	go func() {
		ended <- c.Watch(t.Context(), func() { close(begun) }, func(u agent.Update, lost int) error {
			got = append(got, fmt.Sprintf("%s %s lost %d", u.Kind, u.Pod.Name, lost))
			if len(got) == 2 {
				close(second)
			}
			return nil
		})
	}()
	<-begun
	f.put(agent.Update{Pod: agent.Ref{Name: "web", UID: "u"}, Kind: agent.EventUpdate, Event: &agent.Event{Reason: "Pulled"}})
	<-second
	stop()
	if err := <-ended; !errors.Is(err, ErrCut) {
		t.Errorf("when the agent leaves, the watch ends with %v", err)
	}
	if want := []string{"status web lost 0", "event web lost 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

const logLines = "2026-01-02T03:04:05Z stdout F one\n2026-01-02T03:04:06Z stderr F two\n2026-01-02T03:04:07Z stdout F three\n"

func withLogs(t *testing.T) *fakeAgent {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"0.log": "2026-01-02T03:04:00Z stdout F before\n", "1.log": logLines} {
		path := filepath.Join(dir, "u", "app", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	s := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "app", State: running, RestartCount: 1}, {Name: "later", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
	}}
	return &fakeAgent{logs: dir, pods: []*corev1.Pod{podOf("web", "u", s)}}
}

func TestContainerLogsAsTheKubeletGivesThem(t *testing.T) {
	c, _ := serve(t, withLogs(t))
	for query, want := range map[string]string{
		"":                               "one\ntwo\nthree\n",
		"tailLines=1":                    "three\n",
		"tailLines=0":                    "",
		"previous=true":                  "before\n",
		"timestamps=true&tailLines=1":    "2026-01-02T03:04:07Z three\n",
		"sinceTime=2026-01-02T03:04:06Z": "two\nthree\n",
		"limitBytes=5":                   "one\nt",
		"sinceSeconds=1":                 "",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.request(t.Context(), "GET", "/containerLogs/default/web/app", values, nil)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	for path, code := range map[string]int{
		"/containerLogs/default/web/none":               404,
		"/containerLogs/default/web/later":              400,
		"/containerLogs/default/web/app?tailLines=-1":   400,
		"/containerLogs/default/web/app?sinceTime=noon": 400,
	} {
		p, q, _ := strings.Cut(path, "?")
		values, _ := url.ParseQuery(q)
		_, err := c.request(t.Context(), "GET", p, values, nil)
		var answer *Error
		if !errors.As(err, &answer) || answer.Code != code {
			t.Errorf("%s: %v, want code %d", path, err, code)
		}
	}
}

func TestFollowedContainerLogEndsWithTheContainer(t *testing.T) {
	f := withLogs(t)
	c, _ := serve(t, f)
	resp, err := c.request(t.Context(), "GET", "/containerLogs/default/web/app", url.Values{"follow": {"true"}, "tailLines": {"1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line := make([]byte, 6)
	if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != "three\n" {
		t.Fatalf("%q, %v", line, err)
	}
	file, err := os.OpenFile(filepath.Join(f.logs, "u", "app", "1.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("2026-01-02T03:04:08Z stdout F last\n"); err != nil {
		t.Fatal(err)
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	f.put(agent.Update{Kind: agent.StatusUpdate, Pod: agent.Ref{UID: "u"}, Status: &corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: ended, RestartCount: 1}},
	}})
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != "last\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestLogsOfPodsEndWhenThePodsDo(t *testing.T) {
	f := withLogs(t)
	c, _ := serve(t, f)
	status := f.pods[0].Status
	f.put(agent.Update{Kind: agent.StatusUpdate, Pod: agent.Ref{UID: "u"}, Status: &status})
	var got []string
	err := c.Logs(t.Context(), LogsRequest{UIDs: []types.UID{"u", "unknown"}}, func(l LogLine) error {
		got = append(got, fmt.Sprintf("%d %s %s", l.Attempt, l.Stream, l.Text))
		if len(got) == 4 {
			f.put(agent.Update{Kind: agent.GoneUpdate, Pod: agent.Ref{UID: "u"}})
		}
		return nil
	})
	want := []string{"0 stdout before", "1 stdout one", "1 stderr two", "1 stdout three"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLogsThatAreCutDoNotLookComplete(t *testing.T) {
	f := withLogs(t)
	c, stop := serve(t, f)
	status := f.pods[0].Status
	f.put(agent.Update{Kind: agent.StatusUpdate, Pod: agent.Ref{UID: "u"}, Status: &status})
	n := 0
	err := c.Logs(t.Context(), LogsRequest{UIDs: []types.UID{"u"}}, func(LogLine) error {
		if n++; n == 4 {
			go stop()
		}
		return nil
	})
	if !errors.Is(err, ErrCut) {
		t.Errorf("it ends with %v after %d lines", err, n)
	}
}

func TestExecParametersOfKubeletAndAPIServer(t *testing.T) {
	f := &fakeAgent{}
	c, _ := serve(t, f)
	for query, code := range map[string]int{
		"command=sh&command=-c&input=1&output=1&tty=1": 404,
		"command=ls&stdout=true":                       404,
		"command=ls":                                   400,
		"output=1":                                     400,
	} {
		values, _ := url.ParseQuery(query)
		_, err := c.request(t.Context(), "POST", "/exec/default/web/app", values, nil)
		var answer *Error
		if !errors.As(err, &answer) || answer.Code != code {
			t.Errorf("%s: %v, want code %d", query, err, code)
		}
	}
	got := f.asked()
	slices.Sort(got)
	if want := []string{"exec default/web/app [ls] false", "exec default/web/app [sh -c] true"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func TestIdleOnlyWhenNobodyIsAnswered(t *testing.T) {
	s, err := New(Config{Agent: &fakeAgent{changed: make(chan struct{})}, Leave: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Idle().IsZero() {
		t.Error("a new server is busy")
	}
	client, server := net.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", "/berth/v1/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &pipeWriter{conn: server, began: make(chan struct{}), header: http.Header{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }() // an aborted answer panics, as net/http wants it
		s.ServeHTTP(w, req)
	}()
	<-w.began
	if !s.Idle().IsZero() {
		t.Error("it is idle while it answers")
	}
	cancel()
	<-done
	if since := s.Idle(); since.IsZero() || time.Since(since) > time.Minute {
		t.Errorf("idle since %s", since)
	}
}

type pipeWriter struct {
	conn   net.Conn
	header http.Header
	began  chan struct{}
	once   sync.Once
}

func (w *pipeWriter) Header() http.Header         { return w.header }
func (w *pipeWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *pipeWriter) WriteHeader(int)             {}
func (w *pipeWriter) Flush()                      { w.once.Do(func() { close(w.began) }) }

func TestUpdateKeepsItsShapeOnTheWire(t *testing.T) {
	u := watched{Update: agent.Update{Kind: agent.GoneUpdate, Pod: agent.Ref{Namespace: "default", Name: "web", UID: "u"}}, Lost: 3}
	data, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"0001-01-01T00:00:00Z","pod":{"namespace":"default","name":"web","uid":"u"},"kind":"gone","lost":3}`
	if string(data) != want {
		t.Errorf("got %s", data)
	}
}

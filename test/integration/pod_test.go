package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/manifest"
	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/testutil/leak"
)

// seen is what agents of one node have told, by pod. Safe for concurrent use.
type seen struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next update; guarded by mu
	pods    map[types.UID][]agent.Update
}

func newSeen() *seen {
	return &seen{changed: make(chan struct{}), pods: make(map[types.UID][]agent.Update)}
}

func (s *seen) add(u agent.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[u.Pod.UID] = append(s.pods[u.Pod.UID], u)
	close(s.changed)
	s.changed = make(chan struct{})
}

// of is what was told of a pod; it changes no more. next is closed when there
// is more.
func (s *seen) of(uid types.UID) (all []agent.Update, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.pods[uid]), s.changed
}

// pod is a pod of a test.
type pod struct {
	node *node
	agent.Ref
	spec *corev1.Pod
}

// onePod is a manifest of a pod with one container named app of the demo image.
func onePod(name, container string, spec ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 5\n%s\n  containers:\n  - name: app\n    image: demo\n%s\n",
		name, indent(2, strings.Join(spec, "\n")), indent(4, container))
}

// indent moves text to the right, after removing what all its lines are
// indented by.
func indent(by int, text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	common := -1
	for _, l := range lines {
		if strings.TrimSpace(l) != "" {
			if n := len(l) - len(strings.TrimLeft(l, "\t ")); common < 0 || n < common {
				common = n
			}
		}
	}
	for i, l := range lines {
		if strings.TrimSpace(l) == "" {
			lines[i] = ""
			continue
		}
		lines[i] = strings.Repeat(" ", by) + strings.ReplaceAll(l[common:], "\t", "  ")
	}
	return strings.Join(lines, "\n")
}

var demoWord = regexp.MustCompile(`image: demo([,}\n])`)

// decode reads the manifests of a test.
func decode(t testing.TB, text string) agent.Objects {
	t.Helper()
	text = demoWord.ReplaceAllString(text, "image: "+demoImage+"$1")
	set, problems := manifest.Decode("test.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return agent.Objects{Pods: set.Pods, ConfigMaps: set.ConfigMaps, Secrets: set.Secrets}
}

// apply gives manifests to the agent. Pods that the test leaves are removed when
// it ends, and nothing may stay of them.
func (n *node) apply(t testing.TB, text string) []*pod {
	t.Helper()
	objects := decode(t, text)
	refs, err := n.driver.apply(objects)
	if err != nil {
		t.Fatal(err)
	}
	var pods []*pod
	for i, ref := range refs {
		p := &pod{node: n, Ref: ref, spec: objects.Pods[i]}
		pods = append(pods, p)
		t.Cleanup(func() {
			if n.driver == nil {
				return // the test has stopped the agent; the node is cleaned up
			}
			if t.Failed() {
				t.Logf("pod %s: %s", p.Name, p.story())
			}
			now := int64(0)
			if err := n.driver.remove(p.UID, &now); err != nil {
				t.Error(err)
			}
			p.gone(t)
		})
	}
	return pods
}

// run is apply for one pod.
func (n *node) run(t testing.TB, text string) *pod {
	t.Helper()
	pods := n.apply(t, text)
	if len(pods) != 1 {
		t.Fatalf("%d pods, want 1", len(pods))
	}
	return pods[0]
}

// wait returns the first update, told already or later, that satisfies ok.
func (p *pod) wait(t testing.TB, what string, ok func(u agent.Update) bool) agent.Update {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	read := 0
	for {
		all, next := p.node.seen.of(p.UID)
		for ; read < len(all); read++ {
			if ok(all[read]) {
				return all[read]
			}
		}
		select {
		case <-next:
		case <-deadline.C:
			t.Fatalf("pod %s is not %s: %s", p.Name, what, p.story())
		case <-t.Context().Done():
			t.Fatalf("pod %s was not %s: the test ends", p.Name, what)
		}
	}
}

// until returns the first status of the pod, reported already or later, that
// satisfies ok.
func (p *pod) until(t testing.TB, what string, ok func(s *corev1.PodStatus) bool) *corev1.PodStatus {
	t.Helper()
	return p.wait(t, what, func(u agent.Update) bool { return u.Status != nil && ok(u.Status) }).Status
}

// status is the newest one; empty: none yet.
func (p *pod) status() *corev1.PodStatus {
	all, _ := p.node.seen.of(p.UID)
	for _, u := range slices.Backward(all) {
		if u.Status != nil {
			return u.Status
		}
	}
	return &corev1.PodStatus{}
}

// statuses are all that were reported.
func (p *pod) statuses() []*corev1.PodStatus {
	var found []*corev1.PodStatus
	all, _ := p.node.seen.of(p.UID)
	for _, u := range all {
		if u.Status != nil {
			found = append(found, u.Status)
		}
	}
	return found
}

// reportedSince says whether s is one of the statuses from the n-th on.
func (p *pod) reportedSince(s *corev1.PodStatus, n int) bool {
	return slices.Contains(p.statuses()[n:], s)
}

// event waits for an event of that reason and returns its message.
func (p *pod) event(t testing.TB, reason string) string {
	t.Helper()
	return p.wait(t, "told of by an event "+reason, func(u agent.Update) bool {
		return u.Event != nil && u.Event.Reason == reason
	}).Event.Message
}

// reason waits until container c waits, or has ended, for that reason, and
// returns the message.
func (p *pod) reason(t testing.TB, c, reason string) string {
	t.Helper()
	var message string
	p.until(t, c+" "+reason, func(s *corev1.PodStatus) bool {
		cs := container(s, c)
		switch {
		case cs == nil:
			return false
		case cs.State.Waiting != nil && cs.State.Waiting.Reason == reason:
			message = cs.State.Waiting.Message
			return true
		case cs.State.Terminated != nil && cs.State.Terminated.Reason == reason:
			message = cs.State.Terminated.Message
			return true
		}
		return false
	})
	return message
}

func (p *pod) ready(t testing.TB) *corev1.PodStatus {
	t.Helper()
	return p.until(t, "Ready", isReady)
}

func isReady(s *corev1.PodStatus) bool { return condition(s, corev1.PodReady) }

func (p *pod) succeeded(t testing.TB) *corev1.PodStatus {
	t.Helper()
	s := p.ended(t)
	if s.Phase != corev1.PodSucceeded {
		t.Fatalf("pod %s has failed: %s\n%s", p.Name, p.story(), p.allLogs(t))
	}
	return s
}

func (p *pod) failed(t testing.TB) *corev1.PodStatus {
	t.Helper()
	s := p.ended(t)
	if s.Phase != corev1.PodFailed {
		t.Fatalf("pod %s has succeeded: %s", p.Name, p.story())
	}
	return s
}

func (p *pod) ended(t testing.TB) *corev1.PodStatus {
	t.Helper()
	return p.until(t, "over", func(s *corev1.PodStatus) bool {
		return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	})
}

// stop asks for the end of the pod with its own grace, and waits until nothing
// of it is left.
func (p *pod) stop(t testing.TB) {
	t.Helper()
	p.remove(t)
	p.gone(t)
}

func (p *pod) remove(t testing.TB) {
	t.Helper()
	if err := p.node.driver.remove(p.UID, nil); err != nil {
		t.Fatal(err)
	}
}

// gone waits for the pod's end and checks that nothing is left of it.
func (p *pod) gone(t testing.TB) {
	t.Helper()
	// Cleanups run after the test's context has ended.
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		all, next := p.node.seen.of(p.UID)
		if slices.ContainsFunc(all, func(u agent.Update) bool { return u.Kind == agent.GoneUpdate }) {
			break
		}
		select {
		case <-next:
		case <-deadline.C:
			t.Errorf("pod %s is not gone: %s", p.Name, p.story())
			return
		}
	}
	p.leftNothing(t)
}

// leftNothing checks that nothing on the node bears the pod's name any more.
func (p *pod) leftNothing(t testing.TB) {
	t.Helper()
	names := []string{string(p.UID), strings.ReplaceAll(string(p.UID), "-", "_")}
	for _, s := range p.statuses() {
		for _, c := range slices.Concat(s.ContainerStatuses, s.InitContainerStatuses) {
			names = append(names, idOf(c.ContainerID))
			if c.LastTerminationState.Terminated != nil {
				names = append(names, idOf(c.LastTerminationState.Terminated.ContainerID))
			}
		}
	}
	if left := leak.Named(t, p.node.scope(), names...); len(left) > 0 {
		t.Errorf("pod %s left behind:\n  %s", p.Name, strings.Join(left, "\n  "))
	}
}

// idOf is the runtime's id in a status.
func idOf(containerID string) string {
	_, id, _ := strings.Cut(containerID, "://")
	return id
}

// id waits until container c runs and returns its id.
func (p *pod) id(t testing.TB, c string) string {
	t.Helper()
	var id string
	p.until(t, c+" running", func(s *corev1.PodStatus) bool {
		cs := container(s, c)
		if cs == nil || cs.State.Running == nil {
			return false
		}
		id = idOf(cs.ContainerID)
		return true
	})
	return id
}

// restarts waits until container c has been started again n times and runs.
func (p *pod) restarts(t testing.TB, c string, n int32) *corev1.PodStatus {
	t.Helper()
	return p.until(t, fmt.Sprintf("running %s after %d restarts", c, n), func(s *corev1.PodStatus) bool {
		cs := container(s, c)
		return cs != nil && cs.RestartCount >= n && cs.State.Running != nil
	})
}

// container is the status of the container of that name.
func container(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func condition(s *corev1.PodStatus, kind corev1.PodConditionType) bool {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// line is one line of a container's log.
type line struct {
	at     time.Time
	stream string
	text   string
}

// lines reads what an attempt of a container has written so far; attempt −1:
// all attempts one after the other.
func (p *pod) lines(t testing.TB, c string, attempt int) []line {
	t.Helper()
	name := fmt.Sprintf("%d.log*", attempt)
	if attempt < 0 {
		name = "*.log*"
	}
	files, err := filepath.Glob(filepath.Join(p.node.cfg.Root, "logs/pods", p.Namespace+"_"+p.Name+"_"+string(p.UID), c, name))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(files, compareLogs)
	var all []line
	whole := true
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		scanner := bufio.NewScanner(f)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			parts := strings.SplitN(scanner.Text(), " ", 4)
			if len(parts) != 4 {
				t.Fatalf("%s: not a log line: %q", path, scanner.Text())
			}
			at, err := time.Parse(time.RFC3339Nano, parts[0])
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if !whole {
				all[len(all)-1].text += parts[3]
			} else {
				all = append(all, line{at: at, stream: parts[1], text: parts[3]})
			}
			whole = parts[2] == "F"
		}
		f.Close()
		if err := scanner.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// compareLogs orders the files of a container by age: 0.log.DATE before 0.log
// before 1.log.
func compareLogs(a, b string) int {
	a, b = filepath.Base(a), filepath.Base(b)
	var an, bn int
	fmt.Sscanf(a, "%d.log", &an)
	fmt.Sscanf(b, "%d.log", &bn)
	switch {
	case an != bn:
		return an - bn
	case len(a) != len(b): // the current one is the shortest, and the newest
		return len(b) - len(a)
	}
	return strings.Compare(a, b)
}

// logs is what all attempts of a container have written so far.
func (p *pod) logs(t testing.TB, c string) string {
	t.Helper()
	var b strings.Builder
	for _, l := range p.lines(t, c, -1) {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// says waits until a container's log contains the text.
func (p *pod) says(t testing.TB, c, text string) {
	t.Helper()
	eventually(t, func() error {
		if got := p.logs(t, c); !strings.Contains(got, text) {
			return fmt.Errorf("container %s of pod %s has not said %q but %q", c, p.Name, text, got)
		}
		return nil
	})
}

func (p *pod) allLogs(t testing.TB) string {
	var b strings.Builder
	for _, c := range slices.Concat(p.spec.Spec.InitContainers, p.spec.Spec.Containers) {
		fmt.Fprintf(&b, "%s: %s\n", c.Name, p.logs(t, c.Name))
	}
	return b.String()
}

// eventually tries until there is no error.
func eventually(t testing.TB, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// get asks the pod over HTTP at its address.
func (p *pod) get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	return request(t, http.MethodGet, "http://"+p.status().PodIP+":8080"+path)
}

func (p *pod) post(t testing.TB, path string) (code int, body string) {
	t.Helper()
	return request(t, http.MethodPost, "http://"+p.status().PodIP+":8080"+path)
}

// answers checks that the pod answers with a text that contains want.
func (p *pod) answers(t testing.TB, path, want string) {
	t.Helper()
	answers(t, "http://"+p.status().PodIP+":8080"+path, want)
}

func answers(t testing.TB, url, want string) {
	t.Helper()
	if code, body := request(t, http.MethodGet, url); code != http.StatusOK || !strings.Contains(body, want) {
		t.Errorf("%s answers %d %q, want %q", url, code, body, want)
	}
}

var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// request asks over HTTP, again while nobody listens.
func request(t testing.TB, method, url string) (code int, body string) {
	t.Helper()
	eventually(t, func() error {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		code, body = resp.StatusCode, string(b)
		return err
	})
	return code, body
}

// prints checks that a command in a container prints a text that contains want.
func (p *pod) prints(t testing.TB, c, want string, args ...string) {
	t.Helper()
	if code, out := p.exec(t, c, args...); code != 0 || !strings.Contains(out, want) {
		t.Errorf("%q in container %s prints %q and ends with %d, want %q", args, c, out, code, want)
	}
}

// exec runs berth-demo in a running container.
func (p *pod) exec(t testing.TB, c string, args ...string) (code int, out string) {
	t.Helper()
	client := p.node.shim(t)
	defer client.Close()
	var b bytes.Buffer
	exit, err := client.Exec(t.Context(), shim.ExecRequest{
		ID:      p.id(t, c),
		Process: &specs.Process{Args: append([]string{"/berth-demo"}, args...), Cwd: "/", Env: []string{"PATH=/bin:/"}},
		Stdout:  &b, Stderr: &b, Timeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	return int(exit.Code), b.String()
}

// story tells the pod's statuses and events for people.
func (p *pod) story() string {
	all, _ := p.node.seen.of(p.UID)
	var b strings.Builder
	for _, u := range all {
		fmt.Fprintf(&b, "\n%s ", u.Time.Format("05.000"))
		switch {
		case u.Status != nil:
			fmt.Fprintf(&b, "%s %s %s ready=%t", u.Status.Phase, u.Status.Reason, u.Status.Message, isReady(u.Status))
			for _, c := range slices.Concat(u.Status.InitContainerStatuses, u.Status.ContainerStatuses) {
				fmt.Fprintf(&b, " | %s#%d %s", c.Name, c.RestartCount, stateWords(c.State))
			}
		case u.Event != nil:
			fmt.Fprintf(&b, "event %s %s: %s", u.Event.Reason, u.Event.Container, u.Event.Message)
		default:
			fmt.Fprint(&b, u.Kind)
		}
	}
	return b.String()
}

func stateWords(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return fmt.Sprintf("waits: %s (%s)", s.Waiting.Reason, s.Waiting.Message)
	case s.Terminated != nil:
		return fmt.Sprintf("ended: %s %d (%s)", s.Terminated.Reason, s.Terminated.ExitCode, s.Terminated.Message)
	case s.Running != nil:
		return "runs"
	}
	return "unknown"
}

// tellPodLog shows what the agent logged about the pods of a test that failed.
func (n *node) tellPodLog(t testing.TB) {
	if !t.Failed() {
		return
	}
	b, err := os.ReadFile(n.log.Name())
	if err != nil {
		t.Log(err)
		return
	}
	var mine []string
	for l := range strings.Lines(string(b)) {
		if strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR") {
			mine = append(mine, l)
		}
	}
	t.Logf("what the agent warned of:\n%s", strings.Join(mine, ""))
}

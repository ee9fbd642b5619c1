package podstore

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/db"
	"github.com/berth-run/berth/internal/lifecycle"
)

// node is a store on a real database that can be started anew.
type node struct {
	t     *testing.T
	path  string
	db    *db.DB
	store *Store
	ended map[types.UID]bool
	uids  int
	now   time.Time
	admit func(*corev1.Pod, iter.Seq[*corev1.Pod]) *lifecycle.Reject
}

func newNode(t *testing.T) *node {
	n := &node{t: t, path: filepath.Join(t.TempDir(), "berth.db"), ended: map[types.UID]bool{}, now: time.Unix(1_000_000, 0)}
	n.start()
	t.Cleanup(func() { _ = n.db.Close() })
	return n
}

func (n *node) start() {
	var err error
	if n.db, err = db.Open(db.Config{Path: n.path}); err != nil {
		n.t.Fatal(err)
	}
	n.store, err = New(Config{
		Records: n.db,
		Ended:   func(uid types.UID) bool { return n.ended[uid] },
		NewUID:  func() types.UID { n.uids++; return types.UID(fmt.Sprint("uid-", n.uids)) },
		Now:     func() time.Time { return n.now },
		Admit:   n.admit,
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) restart() {
	if err := n.db.Close(); err != nil {
		n.t.Fatal(err)
	}
	n.start()
}

func (n *node) set(pod *corev1.Pod) types.UID {
	n.t.Helper()
	uid, err := n.store.Set(pod)
	if err != nil {
		n.t.Fatal(err)
	}
	return uid
}

func web(image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "app", Image: image}},
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
	}
}

func uids(list []Desired) []types.UID {
	var all []types.UID
	for _, d := range list {
		all = append(all, d.Pod.UID)
	}
	return all
}

func TestSamePodKeepsItsUIDOverRestarts(t *testing.T) {
	n := newNode(t)
	first := n.set(web("a"))
	if again := n.set(web("a")); again != first {
		t.Errorf("asked again: %s, then %s", first, again)
	}
	n.restart()
	if left := uids(n.store.Leftover()); !slices.Equal(left, []types.UID{first}) || len(n.store.List()) != 0 {
		t.Errorf("after a restart: left %v, wanted %v", left, uids(n.store.List()))
	}
	if again := n.set(web("a")); again != first {
		t.Errorf("after a restart: %s, want %s", again, first)
	}
	if left := n.store.Leftover(); len(left) != 0 {
		t.Errorf("still left: %v", uids(left))
	}
}

func TestOtherContentIsAnotherPod(t *testing.T) {
	for name, change := range map[string]func(n *node, old types.UID) *corev1.Pod{
		"another image":       func(*node, types.UID) *corev1.Pod { return web("b") },
		"another label":       func(*node, types.UID) *corev1.Pod { p := web("a"); p.Labels = map[string]string{"x": "y"}; return p },
		"the old one ended":   func(n *node, old types.UID) *corev1.Pod { n.ended[old] = true; return web("a") },
		"the old one deleted": func(n *node, old types.UID) *corev1.Pod { n.store.Delete(old, nil); return web("a") },
		"the old one stopped": func(n *node, old types.UID) *corev1.Pod {
			n.store.Stop(old, lifecycle.Stop{Reason: "Evicted"})
			return web("a")
		},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted=%v", name, restarted), func(t *testing.T) {
				n := newNode(t)
				old := n.set(web("a"))
				pod := change(n, old)
				if restarted {
					n.restart()
				}
				fresh := n.set(pod)
				if fresh == old {
					t.Fatal("it has the uid of the old one")
				}
				was, ok := n.store.Get(old)
				if !ok || was.Pod.DeletionTimestamp == nil {
					t.Errorf("the old one is not to be deleted: %+v", was)
				}
				// What ends comes first, so that the new one waits for it.
				if got := uids(n.store.List()); !slices.Equal(got, []types.UID{old, fresh}) {
					t.Errorf("order %v", got)
				}
			})
		}
	}
}

func TestGraceOnlyShrinks(t *testing.T) {
	n := newNode(t)
	uid := n.set(web("a"))
	var got []int64
	for _, grace := range []*int64{nil, ptr.To[int64](60), ptr.To[int64](10), ptr.To[int64](20), ptr.To[int64](0), nil} {
		n.store.Delete(uid, grace)
		d, _ := n.store.Get(uid)
		got = append(got, *d.Pod.DeletionGracePeriodSeconds)
	}
	if want := []int64{30, 30, 10, 10, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("deletion grace %v, want %v", got, want)
	}
	second := time.Second
	var stops []time.Duration
	for _, grace := range []*time.Duration{nil, ptr.To(9 * second), ptr.To(20 * second), ptr.To(second), nil} {
		n.store.Stop(uid, lifecycle.Stop{Reason: fmt.Sprint("reason-", len(stops)), Grace: grace})
		d, _ := n.store.Get(uid)
		stops = append(stops, ptr.Deref(d.Stop.Grace, -1))
		if d.Stop.Reason != "reason-0" {
			t.Errorf("the reason became %s", d.Stop.Reason)
		}
	}
	if want := []time.Duration{-1, 9 * second, 9 * second, second, second}; !slices.Equal(stops, want) {
		t.Errorf("stop grace %v, want %v", stops, want)
	}
}

func TestADeletionIsNotTakenBack(t *testing.T) {
	n := newNode(t)
	pod := web("a")
	pod.UID = "api-1"
	n.set(pod)
	n.store.Delete("api-1", ptr.To[int64](5))
	n.set(pod.DeepCopy()) // the source is behind
	d, _ := n.store.Get("api-1")
	if d.Pod.DeletionTimestamp == nil || *d.Pod.DeletionGracePeriodSeconds != 5 {
		t.Errorf("deletion %v, grace %v", d.Pod.DeletionTimestamp, d.Pod.DeletionGracePeriodSeconds)
	}
	n.restart()
	if got := n.store.List(); len(got) != 1 || got[0].Pod.DeletionTimestamp == nil {
		t.Errorf("after a restart the deletion is forgotten: %+v", got)
	}
}

func TestViewsDoNotChange(t *testing.T) {
	n := newNode(t)
	uid := n.set(web("a"))
	view, _ := n.store.Get(uid)
	before := view.Pod.DeepCopy()
	n.store.Delete(uid, nil)
	n.store.Stop(uid, lifecycle.Stop{Reason: "Evicted"})
	n.store.Reject(uid, lifecycle.Reject{Reason: "NodeAffinity"})
	if diff := cmp.Diff(before, view.Pod); diff != "" || view.Stop != nil || view.Reject != nil {
		t.Errorf("a view changed: %s", diff)
	}
}

func TestSubscribersHearOfEachPodOnce(t *testing.T) {
	n := newNode(t)
	first := n.set(web("a"))
	sub := n.store.Subscribe()
	defer sub.Close()
	<-sub.C
	if got := sub.Changed(); !slices.Equal(got, []types.UID{first}) {
		t.Errorf("at first %v", got)
	}
	second := n.set(web("b")) // deletes the first
	n.store.Delete(first, ptr.To[int64](1))
	<-sub.C
	if got := sub.Changed(); !slices.Equal(got, []types.UID{first, second}) {
		t.Errorf("then %v", got)
	}
	if got := sub.Changed(); len(got) != 0 {
		t.Errorf("twice %v", got)
	}
	n.store.Delete(first, ptr.To[int64](20)) // changes nothing
	select {
	case <-sub.C:
		t.Errorf("told of nothing: %v", sub.Changed())
	default:
	}
	n.store.Forget(first)
	<-sub.C
	if got := sub.Changed(); !slices.Equal(got, []types.UID{first}) {
		t.Errorf("of the forgotten one: %v", got)
	}
	if _, ok := n.store.Get(first); ok {
		t.Error("it is not forgotten")
	}
	n.restart()
	if got := uids(n.store.Leftover()); !slices.Equal(got, []types.UID{second}) {
		t.Errorf("after a restart: %v", got)
	}
}

func TestTornRecordsCostOnlyThemselves(t *testing.T) {
	n := newNode(t)
	uid := n.set(web("a"))
	n.db.Put(bucket, "torn", []byte("{"))
	n.db.Put(bucket, "liar", []byte(`{"pod":{"metadata":{"uid":"other"}}}`))
	n.restart()
	if got := uids(n.store.Leftover()); !slices.Equal(got, []types.UID{uid}) {
		t.Errorf("left %v", got)
	}
}

func TestAnEndThatIsOwedIsToldAndNotRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(n *node, uid types.UID)
		same bool
	}{
		"ended, nobody waits":             {func(n *node, uid types.UID) { n.ended[uid] = true }, false},
		"ended, awaited":                  {func(n *node, uid types.UID) { n.store.Await(uid); n.ended[uid] = true }, true},
		"ended, awaited, told":            {func(n *node, uid types.UID) { n.store.Await(uid); n.ended[uid] = true; n.store.Told(uid) }, false},
		"awaited, known by a new process": {func(n *node, uid types.UID) { n.store.Await(uid); n.ended[uid] = true; n.restart() }, true},
		"told, known by a new process": {func(n *node, uid types.UID) {
			n.store.Await(uid)
			n.ended[uid] = true
			n.store.Told(uid)
			n.restart()
		}, false},
		"ended after a new process took it over":            {func(n *node, uid types.UID) { n.restart(); n.ended[uid] = true }, true},
		"ended before a new process took it over":           {func(n *node, uid types.UID) { n.ended[uid] = true; n.restart() }, false},
		"ended after a new process took it over, then told": {func(n *node, uid types.UID) { n.restart(); n.ended[uid] = true; n.store.Told(uid) }, false},
		"asked for again after a new process took it over, then ended": {func(n *node, uid types.UID) {
			n.restart()
			n.set(web("a"))
			n.ended[uid] = true
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			uid := n.set(web("a"))
			c.do(n, uid)
			if again := n.set(web("a")); (again == uid) != c.same {
				t.Errorf("the pod %s, asked for again, is %s", uid, again)
			}
		})
	}
}

// A new pod is admitted beside the pods that stay, once, before anybody sees it.
func TestNewPodIsAdmittedBesideThoseThatStay(t *testing.T) {
	n := newNode(t)
	named := func(name string) *corev1.Pod {
		p := web("a")
		p.Name = name
		return p
	}
	var asked []string
	n.admit = func(pod *corev1.Pod, others iter.Seq[*corev1.Pod]) *lifecycle.Reject {
		beside := pod.Name + ":"
		for o := range others {
			beside += " " + o.Name
		}
		asked = append(asked, beside)
		if pod.Name == "unwanted" {
			return &lifecycle.Reject{Reason: "NodePorts"}
		}
		return nil
	}
	n.restart()
	n.set(named("z-old"))
	n.now = n.now.Add(time.Minute)
	stopped, deleted, ended := n.set(named("stopped")), n.set(named("deleted")), n.set(named("ended"))
	n.store.Stop(stopped, lifecycle.Stop{Reason: "Stopped"})
	n.store.Delete(deleted, nil)
	n.ended[ended] = true
	sub := n.store.Subscribe()
	defer sub.Close()
	sub.Changed()
	unwanted := n.set(named("unwanted"))
	if d, _ := n.store.Get(unwanted); d.Reject == nil || d.Reject.Reason != "NodePorts" {
		t.Errorf("the pod is wanted as %+v", d)
	}
	n.set(named("new"))
	n.restart()
	n.set(named("new")) // the same
	if again := n.set(named("unwanted")); again == unwanted {
		t.Error("a rejected pod is not tried anew when it is asked for again")
	}
	want := []string{"z-old:", "stopped: z-old", "deleted: z-old stopped", "ended: z-old deleted stopped",
		"unwanted: z-old", "new: z-old", "unwanted: z-old new"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

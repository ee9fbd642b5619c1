package agent

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podstore"
)

type noRecords struct{}

func (noRecords) All(string) (map[string][]byte, error) { return nil, nil }
func (noRecords) Put(string, string, []byte)            {}
func (noRecords) Delete(string, string)                 {}

func TestPodsTellThatTheirEndWasAskedFor(t *testing.T) {
	store, err := podstore.New(podstore.Config{Records: noRecords{}, Ended: func(types.UID) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{pods: store, feed: newFeed()}
	set := func(name string) types.UID {
		uid, err := store.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return uid
	}
	report := func(uid types.UID, s corev1.PodStatus) {
		a.feed.put(Update{Kind: StatusUpdate, Pod: Ref{UID: uid}, Status: &s})
	}
	stop := lifecycle.Stop{Reason: "Stopped", Message: "stopped by berth stop"}
	// Nothing was decided on it yet; it runs; it has ended for a reason of its own.
	fresh, runs, ended, stays := set("fresh"), set("runs"), set("ended"), set("stays")
	report(runs, corev1.PodStatus{Phase: corev1.PodRunning})
	report(ended, corev1.PodStatus{Phase: corev1.PodFailed})
	report(stays, corev1.PodStatus{Phase: corev1.PodRunning})
	for _, uid := range []types.UID{fresh, runs, ended} {
		store.Stop(uid, stop)
	}
	want := map[string]bool{"fresh": true, "runs": true, "ended": false, "stays": false}
	for _, p := range a.Pods() {
		if got := Stopping(&p.Status); got != want[p.Name] {
			t.Errorf("pod %s is being stopped: %t, want %t", p.Name, got, want[p.Name])
		}
		if want[p.Name] && (p.Status.Reason != "Stopped" || p.Status.Message != stop.Message) {
			t.Errorf("pod %s: %s: %s", p.Name, p.Status.Reason, p.Status.Message)
		}
	}
	if s := a.feed.status(runs); s.Reason != "" {
		t.Error("the status itself was changed")
	}
}

func TestReadersHearOnceThatAPodIsToGo(t *testing.T) {
	f := newFeed()
	f.tellDeleted("unknown", Removed) // without a status there is nothing to tell
	f.put(Update{Kind: StatusUpdate, Pod: Ref{UID: "u"}, Status: &corev1.PodStatus{Phase: corev1.PodRunning}})
	var got []Deleted
	enough := errors.New("enough")
	err := f.read(context.Background(), func(u Update, _ int) error {
		got = append(got, u.Deleted)
		switch len(got) {
		case 1:
			f.tellDeleted("u", Replaced)
			f.tellDeleted("u", Removed)
			f.put(Update{Kind: GoneUpdate, Pod: Ref{UID: "u"}})
		case 3:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || got[0] != "" || got[1] != Replaced || got[2] != "" {
		t.Errorf("readers heard %q, %v", got, err)
	}
}

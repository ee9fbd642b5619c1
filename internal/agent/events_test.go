package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/db"
)

// second is so many seconds after a beginning.
func second(n int) time.Time { return time.Unix(1_000_000+int64(n), 0) }

func warning(reason, message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: reason, Container: "app", Message: message}
}

func TestAnEventThatRepeatsIsKeptOnceWithItsCount(t *testing.T) {
	p := newPastEvents()
	for i := range 3 {
		p.add("web", warning("Unhealthy", "HTTP 503"), second(10*i))
	}
	p.add("web", warning("Unhealthy", "HTTP 500"), second(1))
	p.add("web", warning("Unhealthy", "HTTP 503"), second(40))
	p.add("db", warning("Unhealthy", "HTTP 503"), second(50))
	want := []PastEvent{
		{Event: warning("Unhealthy", "HTTP 500"), Count: 1, First: second(1), Last: second(1)},
		{Event: warning("Unhealthy", "HTTP 503"), Count: 4, First: second(0), Last: second(40)},
	}
	if diff := cmp.Diff(want, p.of("web")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.forget("web")
	if left := p.of("web"); len(left) != 0 || len(p.of("db")) != 1 || p.total != 1 {
		t.Errorf("after it has gone: %v, %d in all", left, p.total)
	}
}

func TestWhatIsKeptOfEventsIsBounded(t *testing.T) {
	p := newPastEvents()
	p.add("web", warning("Failed", "the cause"), second(0))
	for i := range 1000 {
		p.add("web", warning("Unhealthy", fmt.Sprint("it is ", i)), second(i))
	}
	kept := p.of("web")
	if len(kept) != 1+maxEventsOfReason || kept[0].Message != "the cause" || kept[len(kept)-1].Message != "it is 999" {
		t.Errorf("one reason with ever new texts leaves %+v", kept)
	}
	for i := range 1000 {
		p.add("web", warning(fmt.Sprint("Reason", i), ""), second(2000))
	}
	if n := len(p.of("web")); n != maxEventsOfPod {
		t.Errorf("%d events of a pod are kept, want %d", n, maxEventsOfPod)
	}
	p.add("web", warning("Long", strings.Repeat("é", maxEventMessage)), second(2001))
	kept = p.of("web")
	if m := kept[len(kept)-1].Message; len(m) > maxEventMessage+4 || !utf8.ValidString(m) {
		t.Errorf("of a long message %d bytes are kept: …%q", len(m), m[len(m)-8:])
	}
	for i := range maxEvents {
		p.add(types.UID(fmt.Sprint("pod", i)), warning("Failed", ""), second(3000+i))
	}
	n := 0
	for _, list := range p.pods {
		n += len(list)
	}
	if n != maxEvents || p.total != n {
		t.Errorf("%d events of all pods are kept, %d are counted, want %d", n, p.total, maxEvents)
	}
	if len(p.of("web")) != 0 || len(p.of(types.UID(fmt.Sprint("pod", maxEvents-1)))) != 1 {
		t.Error("the newest gave way to the oldest")
	}
}

func TestTheNextAgentKnowsTheEventsOfPodsThatAreLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	open := func() *db.DB {
		d, err := db.Open(db.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	p := newPastEvents()
	p.add("web", warning("Unhealthy", "HTTP 503"), second(0))
	p.add("web", warning("BackOff", "again"), second(1))
	p.add("web", warning("Unhealthy", "HTTP 503"), second(2))
	p.add("gone", warning("Unhealthy", "HTTP 503"), second(3))
	p.add("unknown", warning("Unhealthy", "HTTP 503"), second(3))
	p.save(d)
	p.forget("gone")
	p.save(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open()
	defer d.Close()
	next := newPastEvents()
	if err := next.load(d, func(uid types.UID) bool { return uid == "web" }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.of("web"), next.of("web")); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if next.total != 2 || len(next.pods) != 1 {
		t.Errorf("%d events of %d pods are left", next.total, len(next.pods))
	}
	if all, err := d.All(eventsBucket); err != nil || len(all) != 1 {
		t.Errorf("on disk are %d pods, %v", len(all), err)
	}
	next.add("web", warning("BackOff", "again"), second(9))
	if last := next.of("web")[1]; last.Reason != "BackOff" || last.Count != 2 || !last.First.Equal(second(1)) {
		t.Errorf("it goes on as %+v", last)
	}
}

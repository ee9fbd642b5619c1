package shim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// Each line is in the log once, in order and whole, however often the shim is
// killed while a container floods it.
func TestKilledShimsLogEachLineOnce(t *testing.T) {
	const lines = 600_000
	n := newNode(t)
	r := n.bundle("a", nil, "lines", fmt.Sprint(lines))
	n.start(r)
	kills := 0
	for ; kills < 15; kills++ {
		list, err := n.List(n.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || list[0].State != shim.Running {
			break
		}
		time.Sleep(time.Duration(kills) * 5 * time.Millisecond) // it is in the midst of it
		n.killShim()
	}
	if e := n.wait("a"); e.Known && e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
	if kills == 0 {
		t.Fatal("the container ended before a shim was killed")
	}
	next, unread := 0, false
	for _, got := range n.entries(r.LogPath) {
		if want := fmt.Sprintf("stdout F line %d", next); got == want {
			next++
			continue
		}
		if unread = strings.Contains(got, "no shim was running when the container ended"); !unread {
			t.Fatalf("after %d kills: %.200q where line %d should be", kills, got, next)
		}
	}
	if next != lines && !unread {
		t.Errorf("%d lines of %d", next, lines)
	}
}

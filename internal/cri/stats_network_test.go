package cri

import (
	"reflect"
	"testing"
)

func TestParseNetDev(t *testing.T) {
	text := "Inter-|   Receive   |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n" +
		"    lo: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n  eth0: 100 2 3 4 0 0 0 0 200 5 6 7 0 0 0 0\nshort: 1 2\n"
	want := []netInterface{{
		name: "eth0",
		rx:   netCounters{bytes: 100, packets: 2, errors: 3, dropped: 4},
		tx:   netCounters{bytes: 200, packets: 5, errors: 6, dropped: 7},
	}}
	if got := parseNetDev(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

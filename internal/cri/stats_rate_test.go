package cri

import (
	"testing"
	"time"
)

func TestCPURate(t *testing.T) {
	var r cpuRate
	began := time.Now()
	for _, step := range []struct {
		name  string
		at    time.Duration
		usage time.Duration
		want  int64 // -1: none
	}{
		{"the first reading has no rate", 0, 100 * time.Second, -1},
		{"too soon for one", rateWindow / 2, 100*time.Second + 400*time.Millisecond, -1},
		{"since the first, not the second", 2 * time.Second, 101 * time.Second, 5e8},
		{"too soon for another", 2*time.Second + rateWindow/2, 108 * time.Second, 5e8},
		{"of several cores", 4 * time.Second, 107 * time.Second, 3e9},
		{"idle", 14 * time.Second, 107 * time.Second, 0},
		{"another group", 20 * time.Second, time.Second, -1},
		{"and its rate", 22 * time.Second, 2 * time.Second, 5e8},
	} {
		got := int64(-1)
		if rate := r.read(began.Add(step.at), step.usage); rate != nil {
			got = int64(*rate)
		}
		if got != step.want {
			t.Errorf("%s: %d, want %d", step.name, got, step.want)
		}
	}
}

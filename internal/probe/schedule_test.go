package probe

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-run/berth/internal/lifecycle"
)

func TestNext(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct{ period, last, now, want time.Duration }{
		"before the first tick":                       {10 * s, -5 * s, -5 * s, 0},
		"the tick after the check":                    {10 * s, 0, 1 * s, 10 * s},
		"a check begun late keeps the grid":           {10 * s, 3 * s, 4 * s, 10 * s},
		"a missed tick is made up now":                {10 * s, 0, 12 * s, 12 * s},
		"many missed ticks are made up by one":        {10 * s, 0, 95 * s, 95 * s},
		"after making up, the grid goes on":           {10 * s, 95 * s, 96 * s, 100 * s},
		"a check that ends right on a tick takes it":  {10 * s, 0, 10 * s, 10 * s},
		"one that began right on a tick has taken it": {10 * s, 10 * s, 10 * s, 20 * s},
	} {
		t.Run(name, func(t *testing.T) {
			zero := time.Now()
			got := Schedule{First: zero, Period: c.period}.Next(zero.Add(c.last), zero.Add(c.now))
			if got != zero.Add(c.want) {
				t.Errorf("got %s, want %s", got.Sub(zero), c.want)
			}
		})
	}
}

func TestFirst(t *testing.T) {
	const s = time.Second
	now := time.Now()
	for name, c := range map[string]struct {
		started       time.Time
		delay, spread time.Duration
		want          time.Duration
	}{
		"no delay":                                {now, 0, 0, 0},
		"the delay counts from the start":         {now.Add(-3 * s), 10 * s, 0, 7 * s},
		"the delay is over":                       {now.Add(-30 * s), 10 * s, 0, 0},
		"spread comes on top":                     {now.Add(-30 * s), 10 * s, 2 * s, 2 * s},
		"a start in the future waits no longer":   {now.Add(time.Hour), 10 * s, 0, 10 * s},
		"a start in the future without any delay": {now.Add(time.Hour), 0, 0, 0},
		"an unknown start":                        {time.Time{}, 10 * s, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := first(now, c.started, c.delay, c.spread).Sub(now); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNextNeverStandsStillNorBunches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zero := time.Now()
		span := func(limit int64) *rapid.Generator[int64] { return rapid.Int64Range(0, limit) }
		grid := Schedule{First: zero, Period: time.Duration(1 + span(int64(time.Minute)).Draw(t, "period"))}
		last := zero.Add(time.Duration(span(int64(time.Hour)).Draw(t, "last")))
		now := last.Add(time.Duration(span(int64(time.Hour)).Draw(t, "took")))
		next := grid.Next(last, now)
		if next.Before(now) || !next.After(last) && now.After(last) {
			t.Fatalf("next %s, last %s, now %s", next.Sub(zero), last.Sub(zero), now.Sub(zero))
		}
		if next.Sub(now) > grid.Period {
			t.Fatalf("next comes %s after now, period %s", next.Sub(now), grid.Period)
		}
		if after := grid.Next(next, next); !after.After(next) || after.Sub(next) > grid.Period {
			t.Fatalf("after %s comes %s", next.Sub(zero), after.Sub(zero))
		}
	})
}

func TestJitterSpreadsEvenlyAndStays(t *testing.T) {
	const n, limit = 10_000, 10 * time.Second
	var buckets [10]int
	for i := range n {
		key := lifecycle.ProbeKey{ContainerID: time.Duration(i).String(), Kind: lifecycle.LivenessProbe}
		j := jitter(key, limit)
		if j < 0 || j >= limit || j != jitter(key, limit) {
			t.Fatal(j)
		}
		buckets[j/time.Second]++
	}
	for i, b := range buckets {
		if b < n/10*8/10 || b > n/10*12/10 {
			t.Errorf("%d of %d in second %d", b, n, i)
		}
	}
	if jitter(lifecycle.ProbeKey{}, 0) != 0 {
		t.Error("jitter without a limit")
	}
}

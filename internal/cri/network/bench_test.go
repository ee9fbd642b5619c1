package network

import (
	"sync"
	"testing"
	"time"
)

func BenchmarkSetup(b *testing.B) {
	for name, ports := range map[string][]PortMapping{"plain": nil, "hostport": {tcp(8060, 80)}, "udp": {udp(8060, 80)}} {
		b.Run(name, func(b *testing.B) {
			n := open(b, testConfig(b))
			if err := n.Up(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				s := newSpace(b)
				b.StartTimer()
				if _, err := n.Setup(b.Context(), Request{ID: s.path, NetNS: s.path, Ports: ports}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := n.Teardown(b.Context(), s.path); err != nil {
					b.Fatal(err)
				}
				n.Flush()
				b.StartTimer()
			}
		})
	}
}

// A hundred pods with a host port each, at once; the time is that of all.
func BenchmarkHundredAtOnce(b *testing.B) {
	const count = 100
	n := open(b, testConfig(b))
	if err := n.Up(b.Context()); err != nil {
		b.Fatal(err)
	}
	all := func(f func(i int) error) {
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				if err := f(i); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	var up, down, flushed time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		b.StopTimer()
		spaces := make([]space, count)
		for i := range spaces {
			spaces[i] = newSpace(b)
		}
		b.StartTimer()
		start := time.Now()
		all(func(i int) error {
			_, err := n.Setup(b.Context(), Request{ID: spaces[i].path, NetNS: spaces[i].path, Ports: []PortMapping{tcp(uint16(10000+i), 80)}})
			return err
		})
		up += time.Since(start)
		start = time.Now()
		all(func(i int) error { return n.Teardown(b.Context(), spaces[i].path) })
		down += time.Since(start)
		n.Flush()
		flushed += time.Since(start)
	}
	b.ReportMetric(float64(up.Milliseconds())/float64(rounds), "ms-setup")
	b.ReportMetric(float64(down.Milliseconds())/float64(rounds), "ms-teardown")
	b.ReportMetric(float64(flushed.Milliseconds())/float64(rounds), "ms-until-gone")
}

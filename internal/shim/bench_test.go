package shim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

// percentile reports the median and the 99th percentile, in milliseconds.
func percentile(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	ms := func(p int) float64 { return float64(times[(len(times)-1)*p/100].Microseconds()) / 1000 }
	b.ReportMetric(ms(50), "p50-ms")
	b.ReportMetric(ms(99), "p99-ms")
}

func benchmarkStart(b *testing.B, change func(*specs.Spec)) {
	n := newNode(b)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		r := n.bundle(fmt.Sprintf("c%d", i), change, "sleep")
		b.StartTimer()
		began := time.Now()
		n.start(r)
		times = append(times, time.Since(began))
		b.StopTimer()
		if err := n.Delete(n.ctx, r.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	percentile(b, times)
}

// Delete of a running container.
func BenchmarkDelete(b *testing.B) {
	n := newNode(b)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		r := n.bundle(fmt.Sprintf("c%d", i), nil, "sleep")
		n.start(r)
		b.StartTimer()
		began := time.Now()
		if err := n.Delete(n.ctx, r.ID); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	percentile(b, times)
}

// Create and Start, without and with a seccomp profile of the default's size.
func BenchmarkStart(b *testing.B) { benchmarkStart(b, nil) }

func BenchmarkStartSeccomp(b *testing.B) { benchmarkStart(b, withSeccomp) }

func benchmarkExec(b *testing.B, change func(*specs.Spec)) {
	n := newNode(b)
	n.start(n.bundle("a", change, "init"))
	var times []time.Duration
	for b.Loop() {
		var out buffer
		began := time.Now()
		if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("true"), Stdout: &out, Stderr: &out}); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	percentile(b, times)
}

func BenchmarkExec(b *testing.B) { benchmarkExec(b, nil) }

func BenchmarkExecSeccomp(b *testing.B) { benchmarkExec(b, withSeccomp) }

// Memory with 100 idle containers, which share the default profile.
func BenchmarkMemory100(b *testing.B) {
	n := newNode(b)
	for i := range 100 {
		r := n.bundle(fmt.Sprintf("c%d", i), withSeccomp, "sleep")
		n.start(r)
	}
	time.Sleep(5 * time.Second) // it gives back what it no longer needs
	pid := n.shimPID()
	for b.Loop() {
		b.ReportMetric(float64(pss(b, pid, "Pss:")), "PSS-KiB")
		b.ReportMetric(float64(pss(b, pid, "Pss_Anon:")), "anon-KiB")
		b.ReportMetric(float64(fds(b, pid)), "fds")
	}
}

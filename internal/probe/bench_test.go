package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berth-run/berth/internal/lifecycle"
)

// TestServe is no test: it is the server of the benchmarks, in a process of its
// own, so that its processor time isn't counted.
func TestServe(t *testing.T) {
	if os.Getenv("BERTH_PROBE_SERVER") == "" {
		t.Skip("runs as a child of the benchmarks only")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening at", l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
}

// server starts the child and returns its port.
func server(b *testing.B) int32 {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), "BERTH_PROBE_SERVER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	buf := make([]byte, 200)
	n, err := out.Read(buf)
	if err != nil {
		b.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), "listening at ")
	_, port, err := net.SplitHostPort(strings.Fields(address)[0])
	if err != nil {
		b.Fatal(err)
	}
	var p int32
	if _, err := fmt.Sscan(port, &p); err != nil {
		b.Fatal(err)
	}
	return p
}

// cpu is the processor time this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHTTPProbes runs 100 probes twice a second each, as 100 pods with
// readiness and liveness probes of 1 s do, and reports the processor time of the
// prober's side: cores is what it takes all in all, µs/check what one check does.
func BenchmarkHTTPProbes(b *testing.B) {
	port := server(b)
	for b.Loop() {
		var checks atomic.Int64
		m, err := New(Config{
			Exec: newFakeExec(healthy), Changed: func(Result) {},
			Checked: func(o Observation) {
				if !o.Check.OK {
					b.Error(o.Check.Output)
				}
				checks.Add(1)
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		for i := range 100 {
			var want []lifecycle.Probe
			for _, kind := range []lifecycle.ProbeKind{lifecycle.ReadinessProbe, lifecycle.LivenessProbe} {
				p := execProbe(fmt.Sprint("c", i), kind)
				p.StartedAt = time.Now().Add(-time.Hour)
				p.Spec.PeriodSeconds = 1
				p.Spec.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(port)}}
				want = append(want, p)
			}
			m.Set(podOf(fmt.Sprint(i)), want)
		}
		time.Sleep(time.Second)
		n, used, began := checks.Load(), cpu(b), time.Now()
		time.Sleep(5 * time.Second)
		used, took := cpu(b)-used, time.Since(began)
		n = checks.Load() - n
		cancel()
		running.Wait()
		b.ReportMetric(float64(n)/took.Seconds(), "checks/s")
		b.ReportMetric(used.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(float64(used.Microseconds())/float64(n), "µs/check")
	}
}

// BenchmarkTenThousandProbes runs 10,000 exec probes with a period of 10 s whose
// commands cost nothing, so that only the Manager's own work is seen.
func BenchmarkTenThousandProbes(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var checks atomic.Int64
		m, err := New(Config{Exec: countingExec{&checks}, Changed: func(Result) {}})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		for i := range 10_000 {
			p := execProbe(fmt.Sprint("c", i), lifecycle.LivenessProbe)
			p.StartedAt = time.Now().Add(-time.Hour)
			m.Set(podOf(fmt.Sprint(i)), []lifecycle.Probe{p})
		}
		time.Sleep(10 * time.Second)
		n, used, began := checks.Load(), cpu(b), time.Now()
		time.Sleep(5 * time.Second)
		used, took := cpu(b)-used, time.Since(began)
		n = checks.Load() - n
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(n)/took.Seconds(), "checks/s")
		b.ReportMetric(used.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10_000, "B/probe")
		cancel()
		running.Wait()
	}
}

type countingExec struct{ n *atomic.Int64 }

func (c countingExec) Exec(context.Context, string, []string) ([]byte, int32, error) {
	c.n.Add(1)
	return nil, 0, nil
}

// BenchmarkHTTPCheck is one check alone, against a server in another process.
func BenchmarkHTTPCheck(b *testing.B) {
	port := server(b)
	p := lifecycle.Probe{IP: "127.0.0.1", Spec: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(port)}}}}
	check := realCheckers().of(nil, &p)
	b.ReportAllocs()
	used := cpu(b)
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		if v := check.check(ctx, time.Second); !v.ok {
			b.Fatal(v.output)
		}
		cancel()
	}
	b.ReportMetric(float64((cpu(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

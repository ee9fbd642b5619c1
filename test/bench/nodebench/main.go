// Command nodebench measures a node agent from outside: how long pods take to be
// Ready, to restart and to go, and what the agent's processes cost meanwhile.
// The same pods and the same clock measure berth through its local API and any
// other node through a Kubernetes API server. It prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"
)

type options struct {
	socket     string
	kubeconfig string
	node       string
	image      string
	tests      string
	procs      string
	restart    string
	samples    int
	burst      int
	window     time.Duration
	scratch    string
}

func main() {
	var o options
	flag.StringVar(&o.socket, "socket", "", "berth's socket; or")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	flag.StringVar(&o.node, "node", "kubelet-1", "spec.nodeName, with -kubeconfig")
	flag.StringVar(&o.image, "image", "docker.io/library/busybox:1.36", "busybox image that is on the node")
	flag.StringVar(&o.tests, "tests", "start,bare,burst,restart,probes", "what to measure: start, bare, burst, restart, probes, comeback")
	flag.StringVar(&o.procs, "procs", "", "NAME=REGEXP of command lines, comma separated: whose memory and CPU count")
	flag.StringVar(&o.restart, "restart-agent", "", "command that kills the agent with -9 and starts it again, for comeback")
	flag.IntVar(&o.samples, "n", 20, "pods one after the other")
	flag.IntVar(&o.burst, "burst", 100, "pods at once")
	flag.DurationVar(&o.window, "window", 20*time.Second, "how long memory and CPU are watched")
	flag.StringVar(&o.scratch, "scratch", "/tmp/nodebench", "folder that pods and this program share")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	var n node
	var err error
	switch {
	case o.socket != "":
		n = newBerth(o.socket)
	case o.kubeconfig != "":
		n, err = newKube(o.kubeconfig, o.node)
	default:
		err = fmt.Errorf("name -socket or -kubeconfig")
	}
	if err != nil {
		return err
	}
	procs, err := parseProcs(o.procs)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.scratch, 0o777); err != nil { //nolint:gosec // pods of any user write there
		return err
	}
	b := &bench{options: o, node: n, procs: procs}
	all := map[string]func(context.Context) (any, error){
		"start": b.start, "bare": b.bare, "burst": b.burstTest, "restart": b.restartTest,
		"probes": b.probes, "comeback": b.comeback,
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	out := map[string]any{"loadavg": strings.TrimSpace(string(load))}
	for name := range strings.SplitSeq(o.tests, ",") {
		test, ok := all[name]
		if !ok {
			return fmt.Errorf("there is no test %q", name)
		}
		log.Printf("measuring %s", name)
		if out[name], err = test(ctx); err != nil {
			return fmt.Errorf("cannot measure %s: %w", name, err)
		}
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", " ")
	return e.Encode(out)
}

// stat is a distribution, in seconds.
type stat struct {
	N   int     `json:"n"`
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	Max float64 `json:"max"`
}

func stats(v []time.Duration) stat {
	if len(v) == 0 {
		return stat{}
	}
	slices.Sort(v)
	at := func(q float64) float64 { return seconds(v[int(q*float64(len(v)-1)+0.5)]) }
	return stat{N: len(v), Min: at(0), P50: at(0.5), P95: at(0.95), Max: at(1)}
}

func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

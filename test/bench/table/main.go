// Command table prints what nodebench measured as a table for people:
// table [-cri] BERTH.json [PEER.json]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
)

// row is one line: where its figure is found, and what berth set out to reach.
type row struct {
	work   string
	path   []string
	unit   string
	target string
}

var rows = []row{
	{"pod started → Ready, with a volume, p50", []string{"start", "start_to_ready_s", "p50"}, "s", "≤ 0.06"},
	{"pod started → Ready, without a volume, p50", []string{"bare", "start_to_ready_s", "p50"}, "s", "≤ 0.06"},
	{"100 pods at once → all Ready", []string{"burst", "all_ready_s"}, "s", "≤ 3"},
	{"process exits → runs again, p50", []string{"restart", "exit_to_restart_s", "p50"}, "s", "≤ 0.04"},
	{"stop → gone, p50", []string{"start", "stop_to_gone_s", "p50"}, "s", "≤ 0.1"},
	{"100 pods stopped at once → all gone", []string{"burst", "all_gone_s"}, "s", "≤ 3"},
	{"agent killed and started with 100 pods: until it reports a change", []string{"comeback", "kill_to_next_change_s"}, "s", "≤ 0.3"},
	{"100 idle pods: PSS", []string{"burst", "idle", "total", "pss_mib"}, "MiB", "≤ 80"},
	{"100 idle pods: of it anonymous", []string{"burst", "idle", "total", "anonymous_mib"}, "MiB", "≤ 45"},
	{"100 idle pods: CPU", []string{"burst", "idle", "total", "cores"}, "core", "≤ 0.01"},
	{"100 pods with 200 http probes/s: CPU", []string{"probes", "cost", "total", "cores"}, "core", "≤ 0.05"},
}

// criRows are for the same kubelet over two runtimes.
var criRows = []row{
	{"pod started → Ready, with a volume, p50", []string{"start", "start_to_ready_s", "p50"}, "s", ""},
	{"pod started → Ready, without a volume, p50", []string{"bare", "start_to_ready_s", "p50"}, "s", "1.5 times"},
	{"100 pods at once → all Ready", []string{"burst", "all_ready_s"}, "s", "1.5 times"},
	{"process exits → runs again, p50", []string{"restart", "exit_to_restart_s", "p50"}, "s", ""},
	{"stop → gone, p50", []string{"start", "stop_to_gone_s", "p50"}, "s", ""},
	{"100 pods stopped at once → all gone", []string{"burst", "all_gone_s"}, "s", ""},
	{"100 idle pods: PSS of the runtime", []string{"burst", "idle", "runtime", "pss_mib"}, "MiB", "20 times"},
	{"100 idle pods: of it anonymous", []string{"burst", "idle", "runtime", "anonymous_mib"}, "MiB", "20 times"},
	{"100 idle pods: CPU of the runtime", []string{"burst", "idle", "runtime", "cores"}, "core", ""},
	{"100 idle pods: CPU of the kubelet", []string{"burst", "idle", "kubelet", "cores"}, "core", ""},
	{"100 pods with 200 http probes/s: CPU of the runtime", []string{"probes", "cost", "runtime", "cores"}, "core", ""},
	{"runtime killed and started with 100 pods: until a change is reported", []string{"comeback", "kill_to_next_change_s"}, "s", ""},
}

func main() {
	log.SetFlags(0)
	cri := flag.Bool("cri", false, "the two ran under the same kubelet")
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		log.Fatal("usage: table [-cri] BERTH.json [PEER.json]")
	}
	names, rows := []string{"berth", "kubelet + containerd"}, rows
	if *cri {
		names, rows = []string{"kubelet + berth cri", "kubelet + containerd"}, criRows
	}
	var results []map[string]any
	for _, file := range flag.Args() {
		data, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		var r map[string]any
		if err := json.Unmarshal(data, &r); err != nil {
			log.Fatalf("%s: %v", file, err)
		}
		results = append(results, r)
	}
	fmt.Printf("| work | %s | %s | ratio | target |\n", names[1], names[0])
	fmt.Println("|---|---|---|---|---|")
	for _, r := range rows {
		ours, ok := find(results[0], r.path)
		if !ok {
			continue
		}
		peer, ratio := "", ""
		if len(results) == 2 {
			if p, ok := find(results[1], r.path); ok {
				peer = show(p, r.unit)
				if ours > 0 {
					ratio = fmt.Sprintf("%.1f", p/ours)
				}
			}
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", r.work, peer, show(ours, r.unit), ratio, r.target)
	}
	for i, r := range results {
		fmt.Printf("\nload average before %s: %v\n", names[i], r["loadavg"])
	}
}

func show(v float64, unit string) string { return fmt.Sprintf("%.3g %s", v, unit) }

func find(m map[string]any, path []string) (float64, bool) {
	var at any = m
	for _, key := range path {
		next, ok := at.(map[string]any)
		if !ok {
			return 0, false
		}
		at = next[key]
	}
	v, ok := at.(float64)
	return v, ok
}

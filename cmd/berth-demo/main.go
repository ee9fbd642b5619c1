// Command berth-demo is a small static program with many behaviours: servers,
// ways to exit, to use memory, to print, and the file commands that probes and
// hooks want. berth's demo image consists of it. See berth-demo --help.
package main

import (
	"os"

	"github.com/berth-run/berth/internal/demo"
)

func main() {
	os.Exit(demo.Main(os.Args))
}

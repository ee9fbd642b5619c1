// Command berth runs Kubernetes Pods on one Linux machine.
package main

import (
	"os"

	"github.com/berth-run/berth/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

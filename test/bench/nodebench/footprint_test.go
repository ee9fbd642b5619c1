package main

import (
	"os/exec"
	"regexp"
	"testing"
)

// What the program is called with names the processes that it looks for: it must
// not count itself.
func TestFootprintLeavesItselfOut(t *testing.T) {
	other := exec.Command("sleep", "98765.4321")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		other.Process.Kill()
		other.Wait()
	}()
	all, err := sample([]proc{
		{"self", regexp.MustCompile(`nodebench\.test .*-test\.`)},
		{"other", regexp.MustCompile(`^sleep 98765\.4321 $`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := all["self"].Processes; n != 0 {
		t.Errorf("it counts itself")
	}
	if n := all["other"].Processes; n != 1 {
		t.Errorf("%d other processes, want 1", n)
	}
}

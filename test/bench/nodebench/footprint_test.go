package main

import (
	"os/exec"
	"regexp"
	"testing"
)

// What the program is called with names the processes that it looks for: it must
// not count itself.
func TestFootprintLeavesItselfOut(t *testing.T) {
	other := exec.Command("sh", "-c", "echo up; read end # 98765.4321")
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_ = other.Wait() // read fails at the end of its input
	}()
	// The kernel knows its arguments a little after Start.
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	all, err := sample([]proc{
		{"self", regexp.MustCompile(`nodebench\.test .*-test\.`)},
		{"other", regexp.MustCompile(`^sh -c .*98765\.4321 $`)},
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

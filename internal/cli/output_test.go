package cli

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// What could not be written is told once, and is a failure, whoever writes.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	dir := t.TempDir()
	file := dir + "/ok.yaml"
	if err := os.WriteFile(file, []byte(pod("once", "Never", 1, "true")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"version", "--version", "--help", "help run", "run --help", "validate " + file,
		"completion bash", "completion zsh", "completion fish",
	} {
		var told bytes.Buffer
		code := Main(strings.Fields(line), strings.NewReader(""), full, &told)
		const want = "berth: cannot write to standard output: no space left on device\n"
		if code != exitFailed || told.String() != want {
			t.Errorf("berth %s ends with %d: %q", line, code, told.String())
		}
	}
}

func TestCommandsOfAnAgentTellAFullOutput(t *testing.T) {
	n := newNode(t)
	once := n.file(pod("once", "Never", 1, "print-lines", "3"))
	for _, args := range [][]string{
		{"run", once}, {"run", "-o", "json", once}, {"ps"}, {"ps", "-o", "json"}, {"ps", "-o", "name"},
		{"logs", "once"}, {"logs", "-f", "once"}, {"image", "ls"}, {"rm", "once"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		cmd := n.command(args...)
		cmd.Stdout, cmd.Stderr = full, &told
		err = errors.Join(cmd.Run(), full.Close())
		if cmd.ProcessState.ExitCode() != exitFailed || strings.Count(told.String(), "cannot write to standard output: no space left on device\n") != 1 ||
			strings.Count(told.String(), "\n") != 1 {
			t.Errorf("berth %s ends with %v: %s", strings.Join(args, " "), err, told.String())
		}
	}
}

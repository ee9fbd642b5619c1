package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A second agent is refused while the first lives, and waits while it dies.
func TestLockWaitsForTheDyingOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.lock")
	if os.Getenv("BERTH_LOCK_HOLDER") != "" {
		if _, err := lockRoot(t.Context(), os.Getenv("BERTH_LOCK_HOLDER")); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		select {}
	}
	holder := exec.Command(os.Args[0], "-test.run", "^TestLockWaitsForTheDyingOnly$")
	holder.Env = append(os.Environ(), "BERTH_LOCK_HOLDER="+path)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Wait() }() // it is killed
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := lockRoot(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f, err := lockRoot(t.Context(), path) // at once, and the holder is not even reaped
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

package network

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	victimEnv = "BERTH_TEST_VICTIM"
	spacesEnv = "BERTH_TEST_SPACES"
)

// TestVictim is the process that TestKilledAtAnyMoment kills: it sets up and
// tears down pods until it ends that way.
func TestVictim(t *testing.T) {
	cfgJSON := os.Getenv(victimEnv)
	if cfgJSON == "" {
		t.Skip("runs in a process of its own, started by another test")
	}
	var cfg Config
	if err := json.Unmarshal([]byte(cfgJSON), &cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var once sync.Once
	for i, path := range strings.Split(os.Getenv(spacesEnv), ",") {
		wg.Go(func() {
			for {
				id := fmt.Sprint("pod", i)
				if _, err := n.Setup(t.Context(), Request{ID: id, NetNS: path, Ports: []PortMapping{tcp(uint16(30000+i), 80), udp(uint16(30000+i), 53)}}); err != nil {
					t.Error(err)
					return
				}
				once.Do(func() { os.NewFile(3, "the killer").Close() })
				if err := n.Teardown(t.Context(), id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Killed with SIGKILL in the midst of setups and teardowns, again and again: the
// next process can always go on, and in the end nothing is left.
func TestKilledAtAnyMoment(t *testing.T) {
	cfg := testConfig(t)
	// The victim reads the configuration as JSON, which the logger is not.
	victimCfg := cfg
	victimCfg.Log = nil
	b, err := json.Marshal(victimCfg)
	if err != nil {
		t.Fatal(err)
	}
	var spaces []string
	for range 8 {
		spaces = append(spaces, newSpace(t).path)
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	left := 0
	for i := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$")
		cmd.Env = append(os.Environ(), victimEnv+"="+string(b), spacesEnv+"="+strings.Join(spaces, ","))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		working, closed, err := os.Pipe() // the victim closes it with its first pod
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = []*os.File{closed}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		closed.Close()
		if i%2 == 0 { // else it may die over what comes before the first pod
			_, _ = working.Read(make([]byte, 1))
		}
		working.Close()
		time.Sleep(time.Duration(random.IntN(100_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if out.Len() != 0 {
			t.Fatalf("the victim could not go on from its predecessor: %s", out.String())
		}
		n, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		left += len(n.pods)
		// Every other time the next victim finds what this one left.
		if random.IntN(2) == 0 {
			if err := n.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Reclaim(t.Context(), func(string) bool { return false }); err != nil {
				t.Fatal(err)
			}
			n.Flush()
			links, _ := inventory(t)
			if got := ports(t, n); !slices.Equal(links, []string{cfg.Bridge}) || got != 0 || len(n.taken) != 0 {
				t.Fatalf("left after reclaiming: links %v, %d ports, %d addresses", links, got, len(n.taken))
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left == 0 {
		t.Error("no victim left anything, so nothing was tested")
	}
	n := open(t, cfg)
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if links, tables := inventory(t); len(links)+len(tables) != 0 {
		t.Errorf("left after cleanup: links %v, tables %v", links, tables)
	}
}

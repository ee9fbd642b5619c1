package imagestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/testutil/images"
)

// pullRequest, if set in the environment, makes the test binary pull an image
// into a store: "root reference".
const pullRequest = "BERTH_TEST_PULL"

func TestMain(m *testing.M) {
	if request := os.Getenv(pullRequest); request != "" {
		os.Exit(pullAsChild(request))
	}
	os.Exit(m.Run())
}

func pullAsChild(request string) int {
	root, ref, _ := strings.Cut(request, " ")
	s, err := Open(Config{Root: root, Registries: RegistryConfig{DockerConfigDir: "-"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := s.Pull(context.Background(), ref, nil, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := s.Close(); err != nil {
		return 1
	}
	return 0
}

// startPull starts another process that pulls.
func startPull(t *testing.T, root, ref string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), pullRequest+"="+root+" "+ref)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

var nothing = map[string]int{"blobs": 0, "ingests": 0, "layers": 0, "leases": 0}

func TestKilledPullLeavesNothingAfterCollect(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts overlayfs")
	}
	registry := images.NewRegistry(t, images.RegistryOptions{})
	first, second := big(t, 1, 50_000), big(t, 2, 500_000)
	ref := registry.Push("app:v1", images.Image(t, first, second))
	reached := make(chan struct{})
	registry.Misbehave(images.Fault{Kind: images.Stall, Target: "blobs", Reference: layerDigest(t, second), Reached: reached})
	root := t.TempDir()
	cmd := startPull(t, root, ref)
	<-reached
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	registry.Behave()

	s := openAt(t, root, nil)
	if cmp.Equal(nothing, leftovers(t, s)) {
		t.Fatal("the killed pull had written nothing: the test proves nothing")
	}
	if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nothing, leftovers(t, s)); diff != "" {
		t.Error(diff)
	}
	pull(t, s, ref)
}

func TestPullKilledAtAnyMomentCanBeRepeated(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts overlayfs")
	}
	registry := images.NewRegistry(t, images.RegistryOptions{})
	layers, want := images.Random(t, 7, 4, 40_000)
	ref := registry.Push("app:v1", images.Image(t, layers...))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	root := t.TempDir()
	for i := range 6 {
		cmd := startPull(t, root, ref)
		time.Sleep(time.Duration(rnd.IntN(250)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if i%2 == 1 {
			continue // killed twice in a row
		}
		s := openAt(t, root, nil)
		img := pull(t, s, ref)
		if diff := cmp.Diff(want, contentOf(t, s, img)); diff != "" {
			t.Error(diff)
		}
		if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
			t.Fatal(err)
		}
		got := leftovers(t, s)
		if got["layers"] != 4 || got["ingests"] != 0 || got["leases"] != 0 || got["blobs"] > 6 {
			t.Errorf("left: %v", got)
		}
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(nothing, leftovers(t, s)); diff != "" {
			t.Error(diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// smallDisk mounts a tmpfs of that size.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		// Detached, as containerd's probe for fs-verity leaves a file open until
		// the next garbage collection of Go.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	small := registry.Push("small:v1", images.Image(t, big(t, 1, 100_000)))
	zeros := make([]byte, 12<<20) // small on the wire, large unpacked
	cases := map[string]string{
		"while fetching":  registry.Push("large:v1", images.Image(t, big(t, 2, 12<<20))),
		"while unpacking": registry.Push("zeros:v1", images.Image(t, images.Layer(t, images.Files{"zeros": zeros}))),
	}
	for name, large := range cases {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, smallDisk(t, 8<<20), nil)
			pull(t, s, small)
			before := leftovers(t, s)
			_, err := s.Pull(t.Context(), large, nil, nil)
			if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "no space left") {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(before, leftovers(t, s)); diff != "" {
				t.Errorf("the failed pull left something: %s", diff)
			}
			if err := unix.Mount("", s.cfg.Root, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", 64<<20)); err != nil {
				t.Fatal(err)
			}
			pull(t, s, large)
			if _, err := s.Get(t.Context(), small); err != nil {
				t.Error(err)
			}
		})
	}
}

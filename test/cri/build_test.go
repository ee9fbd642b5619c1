package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// upstream is the module of critest and crictl.
const upstream = "sigs.k8s.io/cri-tools"

// upstreamDigest is the digest in critest's sources of an image that is in
// upstream's registry only.
const upstreamDigest = "sha256:9700f9a2f5bf2c45f2f605a0bd3bce7cf37420ec9d3ed50ac2758413308766bf"

// tools are the programs that the tests run, each with its path.
type tools struct {
	dir string // below the tree's folder for what can be made anew
}

func (t tools) busybox() string { return filepath.Join(t.dir, "busybox") }
func (t tools) bin() string     { return filepath.Join(t.dir, "bin") }
func (t tools) critest() string { return filepath.Join(t.dir, "bin", "critest") }
func (t tools) crictl() string  { return filepath.Join(t.dir, "bin", "crictl") }
func (t tools) apps() string    { return filepath.Join(t.dir, "bin", "apps") }

// build makes all tools, or what is out of date of them. It may need the network,
// for busybox and for modules. digest is that of the image which takes the place
// of upstream's.
func (t tools) build(digest string) error {
	if err := os.MkdirAll(t.bin(), 0o755); err != nil { //nolint:gosec // programs
		return err
	}
	if err := command("./busybox.sh", t.busybox()); err != nil {
		return err
	}
	modfile, err := t.changedUpstream(digest)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"build", "-o", t.apps(), "./apps"},
		{"build", "-o", filepath.Join(t.bin(), "ginkgo"), "github.com/onsi/ginkgo/v2/ginkgo"},
		{"build", "-o", t.crictl(), upstream + "/cmd/crictl"},
		{"test", "-c", "-modfile", modfile, "-o", t.critest(), upstream + "/cmd/critest"},
	} {
		if err := command("go", args...); err != nil {
			return err
		}
	}
	return nil
}

// changedUpstream copies upstream's module with another digest, and returns the
// go.mod that has the compiler use the copy.
func (t tools) changedUpstream(digest string) (modfile string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", upstream).Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the sources of %s: %w", upstream, err)
	}
	copied := filepath.Join(t.dir, "upstream")
	if err := os.RemoveAll(copied); err != nil {
		return "", err
	}
	if err := os.CopyFS(copied, os.DirFS(strings.TrimSpace(string(out)))); err != nil {
		return "", err
	}
	constants := filepath.Join(copied, "pkg", "validate", "consts.go")
	text, err := os.ReadFile(constants)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), upstreamDigest); n != 1 {
		return "", fmt.Errorf("%s has the digest %s %d times, want once", constants, upstreamDigest, n)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		return "", err
	}
	modfile = filepath.Join(t.dir, "changed.mod")
	for file, content := range map[string]string{
		constants:                           strings.Replace(string(text), upstreamDigest, digest, 1),
		modfile:                             string(mod) + "\nreplace " + upstream + " => " + copied + "\n",
		filepath.Join(t.dir, "changed.sum"): string(sum),
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // sources
			return "", err
		}
	}
	return modfile, nil
}

// command runs a program without cgo, which nothing here needs.
func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run %s: %w\n%s", cmd, err, out)
	}
	return nil
}

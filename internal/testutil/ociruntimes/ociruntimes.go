// Package ociruntimes finds the OCI runtimes that tests call. It must not be used
// outside tests.
package ociruntimes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Names are the runtimes that tests run containers by.
var Names = []string{"runc", "crun"}

// Find gives the path of a runtime, as a program that runs on this machine: one in
// dir if the runtime itself does not.
func Find(dir, name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("needs the package %s (hack/install-deps.sh): %w", name, err)
	}
	if name == "crun" && hybrid() {
		return withoutUnified(dir, path)
	}
	return path, nil
}

// unified is where the cgroup v2 hierarchy is mounted beside those of v1.
const unified = "/sys/fs/cgroup/unified"

// hybrid says that both sorts of hierarchies have controllers, which crun refuses.
func hybrid() bool {
	controllers, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
	return err == nil && strings.TrimSpace(string(controllers)) != ""
}

// withoutUnified is the program with the v2 hierarchy out of its sight. What is
// mounted on the host it sees, and nothing of what it mounts is seen there.
func withoutUnified(dir, program string) (string, error) {
	path := filepath.Join(dir, filepath.Base(program))
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --mount --propagation slave /bin/sh -c 'umount %s && exec \"$0\" \"$@\"' %s \"$@\"\n", unified, program)
	return path, os.WriteFile(path, []byte(script), 0o755) //nolint:gosec // a program
}

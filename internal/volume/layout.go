package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Layout names what belongs to pods on the host:
//
//	ROOT/pods/UID/
//	  etc-hosts                          /etc/hosts of its containers
//	  containers/NAME/ATTEMPT            termination message of a container
//	  volumes/KIND/NAME                  volume: a folder, or a mount of its own
//	  subpaths/VOLUME/CONTAINER/INDEX    bind mount of a part of a volume
type Layout struct {
	Root string // absolute
}

// Pods is the folder of all pods.
func (l Layout) Pods() string { return filepath.Join(l.Root, "pods") }

// Pod is the folder of one pod.
func (l Layout) Pod(uid types.UID) string { return filepath.Join(l.Pods(), string(uid)) }

// HostsFile is what is mounted at /etc/hosts in the pod's containers.
func (l Layout) HostsFile(uid types.UID) string { return filepath.Join(l.Pod(uid), "etc-hosts") }

// TerminationLog is the file that a container may leave its last words in.
func (l Layout) TerminationLog(uid types.UID, container string, attempt int) string {
	return filepath.Join(l.Pod(uid), "containers", container, strconv.Itoa(attempt))
}

// Volume is where a volume of the pod is.
func (l Layout) Volume(uid types.UID, kind Kind, name string) string {
	return filepath.Join(l.volumes(uid), string(kind), name)
}

func (l Layout) volumes(uid types.UID) string  { return filepath.Join(l.Pod(uid), "volumes") }
func (l Layout) subPaths(uid types.UID) string { return filepath.Join(l.Pod(uid), "subpaths") }

// MakeTerminationLog makes the empty file that TerminationLog names, writable
// for everybody: the container's user is not known here.
func (l Layout) MakeTerminationLog(uid types.UID, container string, attempt int) (string, error) {
	path := l.TerminationLog(uid, container, attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("cannot make termination log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return "", fmt.Errorf("cannot make termination log: %w", err)
	}
	err = f.Chmod(0o666) // the umask does not count
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("cannot make termination log: %w", err)
	}
	return path, nil
}

// checkUID refuses uids that are no plain name of a folder.
func checkUID(uid types.UID) error {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("cannot use %q as a pod uid: it is no plain name", uid)
	}
	return nil
}

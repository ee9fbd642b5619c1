package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podconfig"
)

// The API's limits on termination messages, in bytes.
const (
	maxMessage     = 4096
	maxPodMessages = 12 << 10 // of all containers of a pod together
	maxFromLog     = 2048
	maxLogLines    = 80
)

// lastWords is the message of an ended container: the runtime's own, then what
// the container left in its termination message file, or with
// FallbackToLogsOnError the end of its log.
func (r *Runtime) lastWords(pod *corev1.Pod, status *runtimeapi.ContainerStatus, c lifecycle.Container) string {
	left, err := leftIn(messageFile(status))
	if err != nil {
		left = "cannot read the termination message: " + err.Error()
	}
	policy := corev1.TerminationMessagePolicy(status.GetAnnotations()[podconfig.AnnotationTerminationPolicy])
	if left == "" && policy == corev1.TerminationMessageFallbackToLogsOnError &&
		(c.ExitCode != 0 || c.ExitUnknown) && c.Reason != lifecycle.ReasonContainerCannotRun {
		if left, err = endOfLog(status.GetLogPath()); err != nil {
			left = "cannot read the log: " + err.Error()
		}
	}
	message := c.Message
	if message != "" && left != "" {
		message += ": "
	}
	message += left
	limit := maxMessage
	if n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers); n > 0 {
		limit = min(limit, maxPodMessages/n)
	}
	if len(message) > limit {
		message = message[:limit]
	}
	return string(bytes.ToValidUTF8([]byte(message), nil))
}

// messageFile is the host's file behind the container's termination message
// path; empty: there is none.
func messageFile(status *runtimeapi.ContainerStatus) string {
	path := status.GetAnnotations()[podconfig.AnnotationTerminationPath]
	if path == "" {
		return ""
	}
	for _, m := range status.GetMounts() {
		if m.GetContainerPath() == path || m.GetContainerPath() == "/"+path {
			return m.GetHostPath()
		}
	}
	return ""
}

// leftIn reads the last 4096 bytes of a file that a container wrote.
func leftIn(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	// The container had the file in its hands: follow no link, wait for no pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", path)
	}
	data, err := tail(f, info.Size(), maxMessage)
	return string(data), err
}

// tail reads the last max bytes.
func tail(f io.ReaderAt, size, limit int64) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, max(size-limit, 0), limit))
}

// endOfLog is the end of a CRI log as the container wrote it: at most 80 lines
// and 2048 bytes.
func endOfLog(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	// Each line bears some 40 bytes of time and tags, so that this much surely
	// holds 2048 bytes of 80 lines.
	data, err := tail(f, info.Size(), maxFromLog+maxLogLines*64+1)
	if err != nil {
		return "", err
	}
	if int64(len(data)) < info.Size() {
		// The first line is cut.
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return fromLog(data), nil
}

// fromLog takes the container's output out of lines of a CRI log:
// "2026-01-02T15:04:05.999999999Z stdout F the line", with P for a line that
// goes on in the next.
func fromLog(data []byte) string {
	var ends []int // where each line that the container wrote ends
	var out []byte
	for line := range bytes.Lines(data) {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
		if len(fields) < 4 {
			continue // torn
		}
		out = append(out, fields[3]...)
		if tag, _, _ := bytes.Cut(fields[2], []byte(":")); string(tag) == "P" {
			continue
		}
		out = append(out, '\n')
		ends = append(ends, len(out))
	}
	if n := len(ends) - maxLogLines; n > 0 {
		out = out[ends[n-1]:]
	}
	if n := len(out) - maxFromLog; n > 0 {
		out = out[n:]
	}
	return string(out)
}

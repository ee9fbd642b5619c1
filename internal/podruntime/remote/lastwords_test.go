package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/podconfig"
)

func TestOutputIsTakenFromTheLog(t *testing.T) {
	const at = "2026-01-02T15:04:05.999999999Z stdout "
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "%sF line %d\n", at, i)
	}
	for name, c := range map[string]struct{ log, want string }{
		"lines":             {at + "F one\n" + at + "F two three\n", "one\ntwo three\n"},
		"a line in parts":   {at + "P on\n" + at + "F e\n", "one\n"},
		"an unfinished one": {at + "F one\n" + at + "P tw", "one\ntw"},
		"a tag with more":   {at + "P:x on\n" + at + "F:y e\n", "one\n"},
		"torn lines":        {"garbage\n" + at + "F one\n2026", "one\n"},
		"an empty line":     {at + "F \n", "\n"},
		"nothing":           {"", ""},
	} {
		if got := fromLog([]byte(c.log)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := fromLog([]byte(many.String())); !strings.HasPrefix(got, "line 20\n") || !strings.HasSuffix(got, "line 99\n") {
		t.Errorf("of 100 lines: %q", got)
	}
	long := fromLog([]byte(at + "F " + strings.Repeat("x", 3000) + "end\n"))
	if len(long) != 2048 || !strings.HasSuffix(long, "end\n") {
		t.Errorf("of a long line %d bytes: …%q", len(long), long[len(long)-10:])
	}
}

func TestOnlyTheEndOfTheLogIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var log strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&log, "2026-01-02T15:04:05.999999999Z stderr F line %d\n", i)
	}
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := endOfLog(path)
	if err != nil || !strings.HasPrefix(got, "line 9920\n") || !strings.HasSuffix(got, "line 9999\n") {
		t.Errorf("%v: %q", err, got)
	}
	if got, err := endOfLog(path + ".absent"); got != "" || err != nil {
		t.Errorf("of no log: %q, %v", got, err)
	}
}

func TestTerminationMessages(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", "secret of the host")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	log := write("log", "2026-01-02T15:04:05.999999999Z stderr F from the log\n")
	fallback := string(corev1.TerminationMessageFallbackToLogsOnError)
	for name, c := range map[string]struct {
		file, policy, own, reason string
		code                      int32
		containers                int
		want                      string
	}{
		"a file":                         {file: write("a", "bye"), want: "bye"},
		"the runtime's own comes first":  {file: write("b", "bye"), own: "killed", want: "killed: bye"},
		"the last 4096 bytes":            {file: write("c", strings.Repeat("x", 100)+strings.Repeat("y", 4096)), want: strings.Repeat("y", 4096)},
		"12 KiB for the whole pod":       {file: write("d", strings.Repeat("z", 4096)), containers: 12, want: strings.Repeat("z", 1024)},
		"no file":                        {file: filepath.Join(dir, "absent"), want: ""},
		"no link is followed":            {file: link, want: "cannot read"},
		"no pipe is waited for":          {file: pipe, want: "cannot read"},
		"bytes that are no text":         {file: write("e", "a\xffb"), want: "ab"},
		"the log after an error":         {file: write("f", ""), policy: fallback, code: 1, want: "from the log\n"},
		"no log after a success":         {file: write("g", ""), policy: fallback, want: ""},
		"the file before the log":        {file: write("h", "file"), policy: fallback, code: 1, want: "file"},
		"no log without the policy":      {file: write("i", ""), code: 1, want: ""},
		"no log of one that never ran":   {file: write("j", ""), policy: fallback, code: 128, reason: "StartError", own: "no such file", want: "no such file"},
		"the log without a message file": {policy: fallback, code: 1, want: "from the log\n"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := simplePod()
			for range c.containers - 1 {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{})
			}
			status := &runtimeapi.ContainerStatus{
				State: exited, ExitCode: c.code, Reason: c.reason, Message: c.own, LogPath: log,
				Annotations: map[string]string{
					podconfig.AnnotationTerminationPath: "/dev/termination-log", podconfig.AnnotationTerminationPolicy: c.policy,
				},
			}
			if c.file != "" {
				status.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: c.file}}
			}
			got := (&Runtime{}).lastWords(pod, status, containerOf(status))
			if got != c.want && (c.want != "cannot read" || !strings.HasPrefix(got, "cannot read")) {
				t.Errorf("got %d bytes %.60q, want %.60q", len(got), got, c.want)
			}
			if strings.Contains(got, "secret") {
				t.Error("a container reads files of the host")
			}
		})
	}
}

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCommandsThatCannotBeStarted(t *testing.T) {
	const wrapped = "Internal error occurred: error executing command in container: cannot execute in container bf27a5bc9219573eba1ef42c9faa088c1d7ea5b10c8c7c65cf7c979693e1955e: "
	for text, want := range map[string]struct {
		code int
		line string
	}{
		wrapped + `unable to start container process: exec: "ls": executable file not found in $PATH`: {127, "executable file not found in $PATH"},
		wrapped + `unable to start container process: exec: "ls": permission denied`:                  {126, "permission denied"},
		wrapped + "its limit of processes and threads is reached":                                     {1, errPidsLimit.Error()},
		wrapped + "the shim is gone": {1, "cannot execute in container bf27a5bc9219: the shim is gone"},
	} {
		err := execFailed("ls", "app", "web", errors.New(text))
		code := exitFailed
		var exit *exitError
		if errors.As(err, &exit) {
			code = exit.code
		}
		if line := "cannot run ls in container app of pod web: " + want.line; code != want.code || err.Error() != line {
			t.Errorf("got %d, %v; want %d, %s", code, err, want.code, line)
		}
	}
}

func TestACommandWithoutANameIsNotLookedFor(t *testing.T) {
	var out bytes.Buffer
	a := &app{err: &out}
	err := a.exec(t.Context(), "web", []string{"", "x"}, execOptions{})
	var exit *exitError
	if !errors.As(err, &exit) || exit.code != exitNoCommand || !strings.Contains(err.Error(), "its name is empty") {
		t.Errorf("%v", err)
	}
	if err := execFailed("a b", "app", "web", errors.New("gone")); err.Error() != `cannot run "a b" in container app of pod web: gone` {
		t.Errorf("%v", err)
	}
}

func TestNothingRunsInWhatHasEnded(t *testing.T) {
	for text, want := range map[string]string{
		"Running app=run":                                       "",
		"Succeeded app=end:0:Completed":                         "pod web has ended",
		"Running app=end:3:Error other=run":                     "container app of pod web has ended: exit code 3",
		"Pending app=wait:ContainerCreating":                    "does not run: creating",
		"Pending app=wait:PodInitializing +i=run":               "does not run: waits for init",
		"Pending app=wait:ErrImagePull:no:such:image other=run": "does not run: ErrImagePull: no such image",
	} {
		p := parsePod(t, "web", text)
		pod := &corev1.Pod{Spec: *p.spec, Status: *p.status}
		pod.Namespace, pod.Name = "default", "web"
		err := execable(pod, "app")
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

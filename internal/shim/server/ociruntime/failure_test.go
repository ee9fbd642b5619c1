package ociruntime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/shim"
)

func TestWhyAProcessWasNotStarted(t *testing.T) {
	for message, want := range map[string]string{
		`runc create failed: unable to start container process: error during container init: exec: "x": executable file not found in $PATH`: shim.CommandNotFound,
		`exec failed: unable to start container process: exec: "/x": stat /x: no such file or directory`:                                    shim.CommandNotFound,
		"executable file `x` not found in $PATH: No such file or directory":                                                                 shim.CommandNotFound,
		"open executable: Permission denied":            shim.PermissionDenied,
		`exec: "/bin": is a directory`:                  shim.PermissionDenied,
		"mount `/x` to `y`: No such file or directory":  shim.StartFailed,
		"cgroups in hybrid mode not supported":          shim.StartFailed,
		"open seccomp agent socket: permission denied":  shim.StartFailed,
		`exec: "/text": exec format error`:              shim.StartFailed,
		"it took longer than 2m0s and was killed":       shim.StartFailed,
		"write to cgroup.procs: no such file or folder": shim.StartFailed,
	} {
		e := &Error{Program: "crun", Command: "create", Message: message}
		if got := e.StartError(); got.Reason != want || got.Message == "" {
			t.Errorf("%s: reason %s, want %s", message, got.Reason, want)
		}
	}
	if got := (&Error{Program: "runc", Command: "create", Message: "runc create failed: x"}).Error(); got != "runc create failed: x" {
		t.Errorf("a program that says its name is named again: %s", got)
	}
}

// The log says more than the exit code; warnings in it are no causes.
func TestSaidIsTheLastError(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const want = "crun did not terminate successfully: exit status 1: something"
	printed := errors.New(want + "\n")
	if got := said(log, printed); got != want {
		t.Errorf("without a log: %q, want %q", got, want)
	}
	text := `{"level":"error","msg":"first"}
{"level":"error","msg":"last ","time":"now"}
{"level":"warning","msg":"odd"}
no entry
`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := said(log, printed); got != "last" {
		t.Errorf("got %q, want the last error", got)
	}
}

func TestExecGroupsOption(t *testing.T) {
	for _, tc := range []struct {
		groups           ExecGroups
		controller, want string
	}{
		{NoGroups, "", ""}, {NoGroups, "freezer", ""},
		{PlainGroups, "", "a"}, {PlainGroups, "freezer", ""},
		{NamedGroups, "", "a"}, {NamedGroups, "freezer", "freezer:a"},
	} {
		if got := tc.groups.Option(tc.controller, "a"); got != tc.want {
			t.Errorf("%d in %q: %q, want %q", tc.groups, tc.controller, got, tc.want)
		}
	}
}

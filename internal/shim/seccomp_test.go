package shim_test

import (
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/internal/shim"
)

// withSeccomp adds the default profile.
func withSeccomp(s *specs.Spec) { s.Linux.Seccomp = seccomp.DefaultProfile(s) }

func TestSeccompForbidsAndNoNewPrivilegesHolds(t *testing.T) {
	n := newNode(t)
	r := n.bundle("a", func(s *specs.Spec) {
		s.Process.Capabilities = &specs.LinuxCapabilities{}
		s.Process.NoNewPrivileges = true
		withSeccomp(s)
	}, "init")
	n.start(r)
	p := process("status", "Seccomp:", "NoNewPrivs:")
	p.NoNewPrivileges = true
	var out buffer
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: p, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "NoNewPrivs:\t1\nSeccomp:\t2\n"; got != want {
		t.Errorf("status %q, want %q", got, want)
	}
	out = buffer{}
	if _, err := n.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("chroot"), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "operation not permitted\n" {
		t.Errorf("chroot gives %q, want it forbidden", got)
	}
}

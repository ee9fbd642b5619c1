//go:build seccomp && amd64

package seccompcache

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runc/libcontainer/configs"
	libcontainerseccomp "github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// defaultCaps are what a container has that asks for nothing: the default profile
// depends on them.
var defaultCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"}

// upstream is the default profile as its authors wrote it.
func upstream() *specs.LinuxSeccomp {
	return seccomp.DefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: defaultCaps}}})
}

// converted is upstream in libcontainer's words, as a container gets it.
func converted() (*configs.Seccomp, error) { return specconv.SetupSeccomp(upstream()) }

// runDefault is the child's part: it puts the default profile in force, says which
// thread it is in force for, and waits.
func runDefault() {
	runtime.LockOSThread()
	profile, err := converted()
	if err == nil {
		_, err = libcontainerseccomp.InitSeccomp(profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(unix.Gettid())
	_, _ = unix.Read(0, make([]byte, 1))
}

// The filter in force is upstream's default profile, system call by system call,
// made anew, recorded and from the record.
func TestTheFilterInForceIsUpstreamsProfile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: reads the filter of another process")
	}
	profile, err := converted()
	if err != nil {
		t.Fatal(err)
	}
	var c Cache
	for _, run := range []string{"anew", "recorded", "from the record"} {
		var memo *Memo
		var extra []*os.File
		if run != "anew" {
			if memo, err = c.For(profile); err != nil {
				t.Fatal(err)
			}
			if memo.record == (run == "from the record") {
				t.Fatalf("%s: there is a record: %v", run, !memo.record)
			}
			extra = []*os.File{memo.File}
		}
		program := inForce(t, extra)
		if memo != nil {
			memo.Done(true)
		}
		compare(t, run, program, upstream())
	}
}

// inForce starts a process with the default profile and reads its filter.
func inForce(t *testing.T, extra []*os.File) []unix.SockFilter {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=default")
	cmd.ExtraFiles, cmd.Stderr = extra, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	var tid int
	if _, err := fmt.Fscan(out, &tid); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(tid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.PtraceDetach(tid) }()
	if _, err := unix.Wait4(tid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	const getFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER; 0 is the one put in force last
	n, _, errno := syscall.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(tid), 0, 0, 0, 0)
	if errno != 0 {
		t.Skipf("this kernel does not show filters: %v", errno)
	}
	program := make([]unix.SockFilter, n)
	_, _, errno = syscall.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(tid), 0, uintptr(unsafe.Pointer(&program[0])), 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return program
}

// compare holds the program against the profile for each system call there is, with
// the arguments that the profile's conditions are about.
func compare(t *testing.T, run string, program []unix.SockFilter, profile *specs.LinuxSeccomp) {
	t.Helper()
	rules := make(map[string][]specs.LinuxSyscall)
	newest := 0
	for _, r := range profile.Syscalls {
		for _, name := range r.Names {
			rules[name] = append(rules[name], r)
			if nr, err := libseccomp.GetSyscallFromName(name); err == nil {
				newest = max(newest, int(nr))
			}
		}
	}
	allowed, refused := 0, 0
	for nr := range 1024 {
		name, err := libseccomp.ScmpSyscall(nr).GetName()
		if err != nil {
			name = "" // none of this number: like one that no rule names
		}
		for _, args := range arguments(rules[name]) {
			got := evaluate(t, program, uint32(nr), args)
			want := expected(profile, rules[name], args)
			if want == unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM) && nr > newest {
				// libcontainer's own: what is newer than the profile does not exist.
				want = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
			}
			if got != want {
				t.Errorf("%s: %s (%d) with %x gives %#x, want %#x", run, name, nr, args, got, want)
			}
			if want == unix.SECCOMP_RET_ALLOW {
				allowed++
			} else {
				refused++
			}
		}
	}
	if allowed < 300 || refused < 50 {
		t.Errorf("%s: %d cases are allowed and %d refused: this compares nothing", run, allowed, refused)
	}
}

// arguments are those with which some of the rules hold and some don't.
func arguments(rules []specs.LinuxSyscall) [][6]uint64 {
	list := [][6]uint64{{}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
	for _, r := range rules {
		for _, a := range r.Args {
			for _, v := range []uint64{a.Value, a.Value + 1, a.Value - 1, a.ValueTwo, a.Value | 1<<40, ^a.Value} {
				var args [6]uint64
				args[a.Index] = v
				list = append(list, args)
			}
		}
	}
	return list
}

// expected is what the profile says.
func expected(p *specs.LinuxSeccomp, rules []specs.LinuxSyscall, args [6]uint64) uint32 {
	for _, r := range rules {
		if !slices.ContainsFunc(r.Args, func(a specs.LinuxSeccompArg) bool { return !holds(a, args[a.Index]) }) {
			return result(r.Action, r.ErrnoRet)
		}
	}
	return result(p.DefaultAction, p.DefaultErrnoRet)
}

func holds(a specs.LinuxSeccompArg, v uint64) bool {
	switch a.Op {
	case specs.OpEqualTo:
		return v == a.Value
	case specs.OpNotEqual:
		return v != a.Value
	case specs.OpMaskedEqual:
		return v&a.Value == a.ValueTwo
	case specs.OpLessThan:
		return v < a.Value
	case specs.OpLessEqual:
		return v <= a.Value
	case specs.OpGreaterEqual:
		return v >= a.Value
	case specs.OpGreaterThan:
		return v > a.Value
	}
	panic("unknown operator " + a.Op)
}

func result(action specs.LinuxSeccompAction, errno *uint) uint32 {
	switch action {
	case specs.ActAllow:
		return unix.SECCOMP_RET_ALLOW
	case specs.ActErrno:
		if errno == nil {
			return unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		}
		return unix.SECCOMP_RET_ERRNO | uint32(*errno) //nolint:gosec // an errno
	default:
		panic("unknown action " + action)
	}
}

// evaluate runs a filter as the kernel does.
func evaluate(t *testing.T, program []unix.SockFilter, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.NativeEndian.PutUint32(data[0:], nr)
	binary.NativeEndian.PutUint32(data[4:], unix.AUDIT_ARCH_X86_64)
	for i, a := range args {
		binary.NativeEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(program); pc++ {
		ins := program[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(ins.Jt)
			} else {
				pc += int(ins.Jf)
			}
		}
		switch ins.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.NativeEndian.Uint32(data[ins.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= ins.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(ins.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == ins.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(acc > ins.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= ins.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&ins.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return ins.K
		default:
			t.Fatalf("instruction %#x is not known", ins.Code)
		}
	}
	t.Fatal("the program has no end")
	return 0
}

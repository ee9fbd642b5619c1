//go:build seccomp

package seccompcache

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// The test binary plays the process that becomes a container: it builds a filter
// of as many rules as it is told and prints the program, or loads a profile.
const childEnv = "BERTH_SECCOMP_CHILD"

func TestMain(m *testing.M) {
	switch job := os.Getenv(childEnv); job {
	case "":
		os.Exit(m.Run())
	case "init":
		if _, err := seccomp.InitSeccomp(profile()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		// The profile refuses it with an errno of its own.
		fmt.Print(unix.Unshare(unix.CLONE_NEWUTS))
	case "default":
		runDefault()
	default:
		rules, err := strconv.Atoi(job)
		if err == nil {
			err = export(rules)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// export prints the program of a filter with n rules; the names come in the
// order of their numbers, every fifth rule has conditions.
func export(n int) error {
	f, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(1))
	if err != nil {
		return err
	}
	for _, a := range []libseccomp.ScmpArch{libseccomp.ArchX86, libseccomp.ArchX32} {
		if err := f.AddArch(a); err != nil {
			return err
		}
	}
	if err := f.SetOptimize(2); err != nil {
		return err
	}
	for i := range n {
		call := libseccomp.ScmpSyscall(i)
		if i%5 == 4 {
			cond, err := libseccomp.MakeCondition(uint(i%3), libseccomp.CompareMaskedEqual, 0xff, uint64(i))
			if err != nil {
				return err
			}
			err = f.AddRuleConditional(call, libseccomp.ActAllow, []libseccomp.ScmpCondition{cond})
			if err != nil {
				return err
			}
			continue
		}
		if err := f.AddRule(call, libseccomp.ActAllow); err != nil {
			return err
		}
	}
	return f.ExportBPF(os.Stdout)
}

func child(t testing.TB, job string, memo *os.File) []byte {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	if memo != nil {
		cmd.ExtraFiles = []*os.File{memo}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("child: %v: %s", err, errs.Bytes())
	}
	return out.Bytes()
}

// profile is one with many rules that allows all but unshare.
func profile() *configs.Seccomp {
	errno := uint(unix.EXDEV)
	p := &configs.Seccomp{DefaultAction: configs.Allow, Architectures: []string{"amd64", "x86", "x32"}}
	p.Syscalls = append(p.Syscalls, &configs.Syscall{Name: "unshare", Action: configs.Errno, ErrnoRet: &errno})
	for _, name := range []string{"acct", "add_key", "bpf", "kexec_load", "keyctl", "mount", "move_pages", "nfsservctl",
		"open_by_handle_at", "perf_event_open", "pivot_root", "quotactl", "reboot", "request_key", "setns", "swapoff", "swapon",
		"sysfs", "umount2", "userfaultfd", "ustat", "vm86", "vm86old", "init_module", "finit_module", "delete_module",
		"ioperm", "iopl", "lookup_dcookie", "mbind", "get_mempolicy", "set_mempolicy", "kcmp", "uselib"} {
		p.Syscalls = append(p.Syscalls, &configs.Syscall{Name: name, Action: configs.Errno, ErrnoRet: &errno})
	}
	return p
}

// recorded returns the memo of a first process with that many rules.
func recorded(t testing.TB, rules int) *os.File {
	t.Helper()
	var c Cache
	m, err := c.For(&configs.Seccomp{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.File.Close() })
	child(t, strconv.Itoa(rules), m.File)
	m.Done(true)
	again, err := c.For(&configs.Seccomp{})
	if err != nil {
		t.Fatal(err)
	}
	if again.record {
		t.Fatal("the first process left no record")
	}
	return again.File
}

// With a record of the same filter, of a shorter or longer one, of another one or
// with none, the program is the one that libseccomp makes.
func TestTheProgramIsAlwaysLibseccomps(t *testing.T) {
	memo := recorded(t, 200)
	for _, rules := range []int{200, 199, 201, 10, 0, 300} {
		job := strconv.Itoa(rules)
		if plain, with := child(t, job, nil), child(t, job, memo); !bytes.Equal(plain, with) {
			t.Errorf("%d rules: %d bytes without the memo, %d other ones with it", rules, len(plain), len(with))
		}
	}
	if a, b := child(t, "200", nil), child(t, "150", nil); bytes.Equal(a, b) {
		t.Error("different filters give the same program: this test can't fail")
	}
}

// A record that replays is really used: a forged one shows through.
func TestTheRecordIsUsed(t *testing.T) {
	memo := recorded(t, 50)
	data := make([]byte, 1<<20)
	n, err := memo.ReadAt(data, 0)
	if n == 0 {
		t.Fatal(err)
	}
	data = data[:n]
	data[n-1] ^= 0xff
	fd, err := unix.MemfdCreate("forged", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	forged := os.NewFile(uintptr(fd), "forged")
	defer forged.Close()
	if _, err := forged.Write(data); err != nil {
		t.Fatal(err)
	}
	if got := child(t, "50", forged); !bytes.Equal(got, child(t, "50", nil)) {
		t.Error("a record that is not sealed was believed")
	}
	if _, err := unix.FcntlInt(forged.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	if got := child(t, "50", forged); bytes.Equal(got, child(t, "50", nil)) {
		t.Error("the record was not used")
	}
}

// Garbage in place of a record is no record.
func TestGarbageIsNoRecord(t *testing.T) {
	for _, garbage := range []string{"x", "berthsc1", "berthsc1\xff\xff\xff\xff\xff\xff\xff\xff", "berthsc1\x00\x00\x00\x00\x00\x00\x00\x01zz"} {
		fd, err := unix.MemfdCreate("garbage", unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "garbage")
		defer f.Close()
		if _, err := f.WriteString(garbage); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(child(t, "50", f), child(t, "50", nil)) {
			t.Errorf("%q was taken for a record", garbage)
		}
	}
}

// The filter that libcontainer loads is in force with a record as without.
func TestTheFilterIsInForce(t *testing.T) {
	var c Cache
	for range 3 {
		m, err := c.For(profile())
		if err != nil {
			t.Fatal(err)
		}
		if got := string(child(t, "init", m.File)); got != unix.EXDEV.Error() {
			t.Errorf("unshare says %q, want %q", got, unix.EXDEV.Error())
		}
		m.Done(true)
	}
	if len(c.records) != 1 {
		t.Errorf("%d records are kept, want 1", len(c.records))
	}
}

func BenchmarkFilter(b *testing.B) {
	memo := recorded(b, 330)
	for name, m := range map[string]*os.File{"anew": nil, "from-record": memo} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				child(b, "330", m)
			}
		})
	}
}

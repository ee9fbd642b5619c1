// Command inside is the program in the containers of this package's tests. It
// reports what a process sees from inside and does what its first argument says.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"sleep"}
	}
	switch args[0] {
	case "report":
		json.NewEncoder(os.Stdout).Encode(report())
	case "report-and-sleep":
		json.NewEncoder(os.Stdout).Encode(report())
		sleep()
	case "sleep":
		sleep()
	case "exit":
		os.Exit(number(args[1]))
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ignoring")
		sleep()
	case "on-signal": // exits with the signal's number
		c := make(chan os.Signal, 1)
		signal.Notify(c)
		fmt.Println("ready")
		for s := range c {
			if s != syscall.SIGURG {
				os.Exit(int(s.(syscall.Signal)))
			}
		}
	case "lines":
		for i := range number(args[1]) {
			fmt.Printf("line %d\n", i)
			time.Sleep(time.Duration(number(args[2])) * time.Millisecond)
		}
	case "flood":
		out := bufio.NewWriter(os.Stdout)
		for range number(args[1]) {
			out.WriteString(strings.Repeat("x", 1023) + "\n")
		}
		out.Flush()
	case "cat":
		io.Copy(os.Stdout, os.Stdin)
	case "cat-file":
		raw, err := os.ReadFile(args[1])
		check(err)
		os.Stdout.Write(raw)
	case "write":
		check(os.WriteFile(args[1], []byte(args[2]), 0o644))
	case "serve":
		serve(args[1])
	case "tty":
		tty()
	case "alloc":
		b := make([]byte, number(args[1])<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		sleep()
	case "spawn": // children that outlive their parent
		for range number(args[1]) {
			check(exec.Command("/proc/self/exe", "ignore").Start())
		}
		fmt.Println("spawned")
		sleep()
	case "use":
		use(args[1:])
	case "try":
		try(args[1])
	case "stderr":
		fmt.Fprintln(os.Stderr, args[1])
		fmt.Println("out")
	default:
		fmt.Fprintln(os.Stderr, "inside: no such thing:", args[0])
		os.Exit(2)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sleep waits for a signal that ends the process.
func sleep() {
	c := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGTERM) {
		signal.Notify(c, syscall.SIGTERM)
	}
	select {
	case <-c:
		os.Exit(0)
	case <-time.After(time.Hour):
	}
}

type view struct {
	Status     map[string]string // of /proc/self/status
	Args       []string
	Env        []string
	Cwd        string
	Hostname   string
	PID        int
	Namespaces map[string]string
	Mounts     map[string]string // options by mount point
	OOMScore   string
	Cgroup     string
	UIDMap     string
	Processes  []string // command lines of the processes it sees
	Devices    []string // in /dev
	Addresses  []string
}

func report() view {
	v := view{
		Status: map[string]string{}, Namespaces: map[string]string{}, Mounts: map[string]string{},
		Args: os.Args, Env: os.Environ(), PID: os.Getpid(),
	}
	v.Cwd, _ = os.Getwd()
	v.Hostname, _ = os.Hostname()
	for line := range strings.Lines(read("/proc/thread-self/status")) {
		k, val, _ := strings.Cut(line, ":")
		v.Status[k] = strings.TrimSpace(val)
	}
	for _, ns := range []string{"net", "ipc", "uts", "pid", "user", "mnt", "cgroup"} {
		v.Namespaces[ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		f := strings.Fields(line)
		v.Mounts[f[4]] = f[5]
	}
	v.OOMScore = strings.TrimSpace(read("/proc/self/oom_score_adj"))
	v.Cgroup = read("/proc/self/cgroup")
	v.UIDMap = strings.Join(strings.Fields(read("/proc/self/uid_map")), " ")
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range cmdlines {
		if text := strings.ReplaceAll(strings.TrimRight(read(c), "\x00"), "\x00", " "); text != "" {
			v.Processes = append(v.Processes, text)
		}
	}
	entries, _ := os.ReadDir("/dev")
	for _, e := range entries {
		v.Devices = append(v.Devices, e.Name())
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		v.Addresses = append(v.Addresses, a.String())
	}
	return v
}

func read(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}

// serve answers each connection with what it sent.
func serve(port string) {
	l, err := net.Listen("tcp", ":"+port)
	check(err)
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		check(err)
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

func tty() {
	var size struct{ rows, cols, x, y uint16 }
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 1, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
		if errno != 0 {
			fmt.Println("no terminal:", errno)
			os.Exit(1)
		}
		if size.cols == 99 {
			fmt.Printf("size %dx%d TERM=%s\n", size.cols, size.rows, os.Getenv("TERM"))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// try makes a system call that something may forbid, and says what came of it.
func try(what string) {
	var err error
	switch what {
	case "unshare-user":
		// A process with one thread is needed for this one to get beyond seccomp.
		err = syscall.Unshare(syscall.CLONE_NEWUSER)
	case "mount":
		err = syscall.Mount("none", "/tmp", "tmpfs", 0, "")
	case "chmod":
		err = os.Chmod("/tmp", 0o700)
	case "mknod":
		err = syscall.Mknod("/tmp/node", syscall.S_IFCHR|0o600, 1<<8|3)
	case "mkdir":
		err = syscall.Mkdir("/tmp/made", 0o755)
	case "keyctl":
		_, _, errno := syscall.Syscall(syscall.SYS_KEYCTL, 0, 0, 0)
		if errno != 0 {
			err = errno
		}
	}
	fmt.Println(what+":", err)
}

// Command helper is what the tests of the shim run in containers: the only
// file of their root filesystem, linked statically.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		return
	}
	switch cmd, rest := args[0], args[1:]; cmd {
	case "true":
	case "exit":
		os.Exit(number(rest, 0))
	case "sleep": // sleep [SECONDS], ends on SIGTERM with the default action
		time.Sleep(time.Duration(number(rest, 1000)) * time.Second)
	case "init": // like a good first process: reaps, ends on SIGTERM with 0
		initProcess()
	case "echo":
		fmt.Println(strings.Join(rest, " "))
	case "both": // one line to each output
		fmt.Fprintln(os.Stdout, rest[0])
		fmt.Fprintln(os.Stderr, rest[1])
	case "raw": // the arguments as they are, escapes undone, then exit
		for _, a := range rest {
			s, err := strconv.Unquote(`"` + a + `"`)
			check(err)
			_, err = os.Stdout.WriteString(s)
			check(err)
		}
	case "repeat": // repeat BYTE COUNT: a long line without an end
		_, err := os.Stdout.WriteString(strings.Repeat(rest[0], number(rest[1:], 0)))
		check(err)
	case "lines": // lines COUNT [MILLISECONDS between]
		w := os.Stdout
		for i := range number(rest, 0) {
			fmt.Fprintf(w, "line %d\n", i)
			time.Sleep(time.Duration(number(rest[1:], 0)) * time.Millisecond)
		}
	case "rate": // rate COUNT PER_SECOND [CODE]: lines, a hundred times a second
		count, perSecond := number(rest, 0), number(rest[1:], 0)
		began := time.Now()
		for i := 0; i < count; time.Sleep(10 * time.Millisecond) {
			for due := int(time.Since(began).Seconds() * float64(perSecond)); i < min(due, count); i++ {
				fmt.Fprintf(os.Stdout, "line %d\n", i)
			}
		}
		os.Exit(number(rest[min(2, len(rest)):], 0))
	case "flood": // flood BYTES
		line := []byte(strings.Repeat("x", 127) + "\n")
		w := bufio.NewWriterSize(os.Stdout, 64<<10)
		for n := number(rest, 0); n > 0; n -= len(line) {
			_, err := w.Write(line)
			check(err)
		}
		check(w.Flush())
	case "alloc": // alloc MEBIBYTES
		var keep [][]byte
		for range number(rest, 0) {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			keep = append(keep, b)
		}
		fmt.Println(len(keep))
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		check(err)
		fmt.Println("end of input")
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(1000 * time.Second)
	case "trap": // exits with 42 on SIGTERM
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		os.Exit(42)
	case "farewell": // says so on SIGTERM, and ends
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		fmt.Println("bye")
	case "tree": // tree DEPTH: children and grandchildren, in sessions of their own
		tree(number(rest, 0))
		fmt.Println("grown")
		time.Sleep(1000 * time.Second)
	case "daemon": // leaves a process behind that keeps the outputs open
		start(true, "sleep", "1000")
		fmt.Println("left")
	case "forks": // a fork bomb
		for {
			c := exec.Command("/proc/self/exe", "forks")
			if c.Start() != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	case "procs": // how many processes the PID namespace has, zombies in brackets
		procs()
	case "status": // lines of /proc/self/status that begin with an argument
		b, err := os.ReadFile("/proc/self/status")
		check(err)
		for line := range strings.Lines(string(b)) {
			for _, prefix := range rest {
				if strings.HasPrefix(line, prefix) {
					fmt.Print(line)
				}
			}
		}
	case "limit": // limit RESOURCE: soft and hard limit, then the OOM score adjustment
		var l syscall.Rlimit
		check(syscall.Getrlimit(number(rest, 0), &l))
		b, err := os.ReadFile("/proc/self/oom_score_adj")
		check(err)
		fmt.Println(l.Cur, l.Max, strings.TrimSpace(string(b)))
	case "chroot": // a system call that the default seccomp profile forbids
		fmt.Println(syscall.Chroot("/"))
	case "size": // of the terminal, again on each SIGWINCH
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGWINCH)
		for {
			fmt.Println(size())
			<-c
		}
	case "fds": // open descriptors
		entries, err := os.ReadDir("/proc/self/fd")
		check(err)
		for _, e := range entries {
			target, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err == nil {
				fmt.Println(e.Name(), target)
			}
		}
	default:
		fmt.Fprintf(os.Stderr, "helper: no command %q\n", cmd)
		os.Exit(64)
	}
}

func number(args []string, def int) int {
	if len(args) == 0 {
		return def
	}
	n, err := strconv.Atoi(args[0])
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(65)
	}
}

func initProcess() {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGCHLD)
	fmt.Println("ready")
	for sig := range c {
		if sig == syscall.SIGTERM {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func start(session bool, args ...string) {
	c := exec.Command("/proc/self/exe", args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	check(c.Start())
}

func tree(depth int) {
	if depth == 0 {
		return
	}
	start(true, "tree", strconv.Itoa(depth-1))
	start(false, "sleep", "1000")
}

func procs() {
	entries, err := os.ReadDir("/proc")
	check(err)
	alive, zombies := 0, 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		if strings.Contains(string(b), ") Z ") {
			zombies++
		} else {
			alive++
		}
	}
	fmt.Printf("%d [%d]\n", alive, zombies)
}

package demo

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const mib = 1 << 20

// alloc takes memory, touches every page and keeps it.
func alloc(p *program, args []string) error {
	var every duration
	step := 16
	rest, err := parse(args, func(fs *flag.FlagSet) {
		fs.IntVar(&step, "step", step, "")
		fs.Var(&every, "every", "")
	})
	if err != nil {
		return err
	}
	total, err := oneNumber(rest, "MiB to use")
	if err != nil {
		return err
	}
	if step < 1 {
		return usageError{"--step must be at least 1"}
	}
	debug.SetGCPercent(-1) // nothing of it is garbage
	var kept [][]byte
	for have := 0; have < total; {
		n := min(step, total-have)
		chunk := make([]byte, n*mib)
		for i := 0; i < len(chunk); i += 4096 {
			chunk[i] = 1
		}
		kept = append(kept, chunk)
		have += n
		fmt.Fprintf(p.out, "using %d MiB\n", have)
		if every > 0 && p.wait(time.Duration(every)) {
			return terminated
		}
	}
	<-p.term
	runtime.KeepAlive(kept)
	return terminated
}

// start runs this program again, with its streams.
func start(args ...string) (pid int, err error) {
	argv := append([]string{"berth-demo"}, args...)
	return syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
	})
}

// spawn keeps children. They end with their parent's SIGTERM only if they get
// one themselves, as a runtime that stops a container must see to.
func spawn(p *program, args []string) error {
	each := 0
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.IntVar(&each, "each", 0, "") })
	if err != nil {
		return err
	}
	n, err := oneNumber(rest, "children")
	if err != nil {
		return err
	}
	for range n {
		child := []string{"sleep", "inf"}
		if each > 0 {
			child = []string{"spawn", strconv.Itoa(each)}
		}
		if _, err := start(child...); err != nil {
			return fmt.Errorf("cannot start a child: %w", err)
		}
	}
	fmt.Fprintf(p.out, "%d started %d children\n", os.Getpid(), n)
	for !p.wait(time.Second) {
		reap()
	}
	return terminated
}

// forkBomb starts processes that do the same, until it is refused; then it
// tries again and again.
func forkBomb(p *program, args []string) error {
	generations := -1
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.IntVar(&generations, "max", -1, "") })
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return usageError{"want no arguments"}
	}
	refused := false
	for generations != 0 {
		for range 2 {
			if _, err := start("forkbomb", "--max", strconv.Itoa(generations-1)); err != nil && !refused {
				refused = true
				fmt.Fprintf(p.out, "%d: cannot start a process: %v\n", os.Getpid(), err)
			}
		}
		if generations > 0 {
			break
		}
		reap()
		if p.wait(10 * time.Millisecond) {
			return terminated
		}
	}
	<-p.term
	return terminated
}

// printLines prints "line 1 …". With a rate it prints on time, without one as
// fast as it is read.
func printLines(p *program, args []string) error {
	var rate float64
	var toStderr, hold bool
	size := 0
	rest, err := parse(args, func(fs *flag.FlagSet) {
		fs.Float64Var(&rate, "rate", 0, "")
		fs.IntVar(&size, "size", 0, "")
		fs.BoolVar(&toStderr, "stderr", false, "")
		fs.BoolVar(&hold, "hold", false, "")
	})
	if err != nil {
		return err
	}
	n, err := oneNumber(rest, "lines to print")
	if err != nil {
		return err
	}
	to := p.out
	if toStderr {
		to = p.err
	}
	w := bufio.NewWriterSize(to, 32<<10)
	padding := strings.Repeat("x", max(size, 0))
	began := time.Now()
	for i := 1; n == 0 || i <= n; i++ {
		line := "line " + strconv.Itoa(i)
		if missing := size - len(line) - 2; missing > 0 {
			line += " " + padding[:missing]
		}
		if _, err := w.WriteString(line + "\n"); err != nil {
			return err
		}
		select {
		case <-p.term:
			_ = w.Flush()
			return terminated
		default:
		}
		if rate > 0 {
			if err := w.Flush(); err != nil {
				return err
			}
			due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if i != n && p.wait(time.Until(due)) {
				return terminated
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if hold {
		<-p.term
	}
	return nil
}

// Package demo is what the program berth-demo does. The first argument chooses
// a behaviour. It is made to be a container's first process: it answers
// SIGTERM, reaps orphans, prints one line when it starts, and idles with as
// little memory as Go allows. It uses the standard library only, so that the
// binary stays small.
package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"text/tabwriter"
)

// program is one run: its streams and its end.
type program struct {
	in       io.Reader
	out, err io.Writer
	term     <-chan struct{} // closed at the first SIGTERM or SIGINT
}

// command is one behaviour.
type command struct {
	name string
	args string // as shown in the help
	help string
	run  func(p *program, args []string) error
	tool bool // SIGTERM ends it at once; the others see to that themselves
}

// exitCode is an error that only says how to end.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// terminated is the end by SIGTERM of commands for which that is no success.
const terminated = exitCode(128 + 15)

// usageError is a wrong command line.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

// commands are all behaviours.
func commands() []command {
	return []command{
		{"serve", "[--port 8080] [--tls] [--ready-after D] [--term-delay D]", "answer http: /healthz /readyz /livez /env /hostname /headers /delay /redirect /status /body /exit", serve, false},
		{"slow-start", "D [serve flags]", "wait D, then serve", slowStart, false},
		{"grpc-health", "[--port 9090] [--service S] [--status SERVING] [--tls]", "answer grpc.health.v1.Health/Check", grpcHealth, false},
		{"tcp-listen", "[--port 7000]", "accept connections and send back what comes", tcpListen, false},
		{"udp-echo", "[--port 7000]", "send back each datagram", udpEcho, false},
		{"http-get", "URL [--timeout 5s] [--header K:V] [--insecure]", "print the body; exit 1 unless the status is 2xx", httpGet, true},
		{"tcp-send", "ADDRESS [TEXT]", "connect, send TEXT, print the answer", tcpSend, true},
		{"udp-send", "ADDRESS [TEXT]", "send TEXT, print the answer", udpSend, true},

		{"exit", "CODE [--after D]", "end with CODE", exitWith, false},
		{"crash-after", "D", "print an error and end with 1 after D", crashAfter, false},
		{"sleep", "[D]", "wait for D, or for SIGTERM, and end with 0", sleep, false},
		{"ignore-term", "[D]", "ignore SIGTERM for D or for ever", ignoreTerm, false},
		{"term-delay", "D", "on SIGTERM wait D, then end with 0", termDelay, false},
		{"wait-file", "FILE [--timeout D]", "wait until FILE exists", waitFile, false},

		{"alloc", "MIB [--step MIB] [--every D]", "use that much memory and keep it", alloc, false},
		{"spawn", "N [--each M]", "keep N children, each with M children", spawn, false},
		{"forkbomb", "[--max N]", "start processes without end, or N generations", forkBomb, false},
		{"print-lines", "N [--rate R] [--size B] [--stderr] [--hold]", "print N numbered lines (0: no end), R a second, B bytes long", printLines, false},

		{"cat", "[FILE...]", "print files, or standard input", cat, true},
		{"write", "FILE [TEXT...] [--append]", "write TEXT, or standard input, to FILE", writeFile, true},
		{"test", "EXPRESSION", "as test(1): -e -f -d -L -r -w -x -s -n -z = != ! FILE", test, true},
		{"ls", "[-a] [-l] [PATH...]", "list files", ls, true},
		{"stat", "FILE...", "print type, mode, owner and size", stat, true},
		{"touch", "FILE...", "make files or renew their time", touch, true},
		{"rm", "[-r] [-f] FILE...", "remove files", rm, true},
		{"mkdir", "[-p] FOLDER...", "make folders", mkdir, true},
		{"mount", "KIND FOLDER", "mount a new file system, such as tmpfs", mount, true},

		{"echo", "[-n] [TEXT...]", "print TEXT", echo, true},
		{"true", "", "end with 0", func(*program, []string) error { return nil }, true},
		{"false", "", "end with 1", func(*program, []string) error { return exitCode(1) }, true},
		{"env", "[NAME...]", "print environment variables", printEnv, true},
		{"hostname", "", "print the host name", printHostname, true},
		{"id", "", "print user and groups", printID, true},
		{"caps", "", "print ids, capabilities, no_new_privs and seccomp of this process", printCaps, true},
		{"mounts", "", "print the mounts of this process", printMounts, true},
		{"resolv", "[NAME]", "print resolv.conf, or look NAME up", resolv, true},
	}
}

// Main runs the command that args name and gives the exit code. If the program
// is called by the name of a command (through a link), that command runs.
func Main(args []string) int {
	// Idle memory counts more than speed here.
	debug.SetGCPercent(20)
	stopReaping := reapOrphans()
	defer stopReaping()
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr, term: notifyTerm()}
	return p.main(args)
}

func (p *program) main(args []string) int {
	name := filepath.Base(args[0])
	rest := args[1:]
	c := find(name)
	if c == nil {
		if len(rest) == 0 || isHelp(rest[0]) {
			printHelp(p.out)
			return 0
		}
		name, rest = rest[0], rest[1:]
		if c = find(name); c == nil {
			fmt.Fprintf(p.err, "berth-demo: there is no command %q; see berth-demo --help\n", name)
			return 2
		}
	}
	if name != "echo" && name != "test" && len(rest) > 0 && isHelp(rest[0]) {
		fmt.Fprintf(p.out, "berth-demo %s %s\n\n%s.\n", c.name, c.args, c.help)
		return 0
	}
	if c.tool {
		go func() {
			<-p.term
			os.Exit(int(terminated))
		}()
	}
	return p.code(c, c.run(p, rest))
}

// code turns the outcome of a command into an exit code, and says what went
// wrong.
func (p *program) code(c *command, err error) int {
	var code exitCode
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(p.err, "berth-demo %s: %s\nusage: berth-demo %s %s\n", c.name, usage.message, c.name, c.args)
		return 2
	default:
		fmt.Fprintf(p.err, "berth-demo %s: %v\n", c.name, err)
		return 1
	}
}

func find(name string) *command {
	all := commands()
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

func isHelp(arg string) bool { return arg == "--help" || arg == "-h" || arg == "help" }

func printHelp(w io.Writer) {
	fmt.Fprint(w, "berth-demo does what its first argument says. Durations are like 1.5s or 200ms; a bare\nnumber means seconds, inf means for ever.\n\n")
	all := commands()
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range all {
		fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace(c.name+" "+c.args), c.help)
	}
	_ = tw.Flush()
}

// Command berth-shim owns the containers of a node: it starts them with
// libcontainer, logs their output and reports how they end. berth starts it;
// nobody needs to run it by hand.
//
//	berth-shim serve --run DIR [--cgroup PATH] [--detach]
//	berth-shim pause    the first process of a sandbox whose containers share
//	                    a PID namespace: reaps, and ends on SIGTERM
//	berth-shim hold     keeps a terminal open (see internal/shim/server)
//	berth-shim init     libcontainer's first process in a container
//	berth-shim version
//	berth-shim check --run DIR    says whether this program can go on for the shim
//	                              there, which asks before it is upgraded
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	_ "github.com/opencontainers/cgroups/devices" // applies device rules
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // enters namespaces before Go starts
	"github.com/sirupsen/logrus"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/server"
)

// version is set by the linker.
var version = "dev"

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	switch command {
	case "init":
		libcontainer.Init() // does not return
	case "hold":
		server.Hold()
	case "pause":
		pause()
	case "serve":
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "berth-shim: %v\n", err)
			if errors.Is(err, server.ErrServed) {
				os.Exit(shim.AlreadyServed)
			}
			os.Exit(1)
		}
	case "version":
		fmt.Printf("berth-shim %s (protocol %d)\n", version, shim.Protocol)
	case "check":
		if err := check(os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "berth-shim: %v\n", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: berth-shim serve --run DIR [--cgroup PATH] [--detach] | pause | version\nberth starts it by itself; see berth --help.")
		os.Exit(2)
	}
}

// check says what this program is to the shim that it is to replace, or why it
// can't.
func check(args []string) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	run := flags.String("run", "", "`folder` of the shim's sockets and state")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return server.Check(filepath.Clean(*run), version, os.Stdout)
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	run := flags.String("run", "", "`folder` of sockets and state")
	cgroup := flags.String("cgroup", "", "cgroup `path` to move to")
	detach := flags.Bool("detach", false, "serve in the background; return once clients can connect")
	level := flags.String("log-level", "info", "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !filepath.IsAbs(*run) {
		return fmt.Errorf("--run %q: want an absolute path", *run)
	}
	if os.Geteuid() != 0 {
		return errors.New("containers need root: run it as root")
	}
	if *detach {
		return serveDetached(*run, *cgroup, *level)
	}
	var lv slog.Level
	if err := lv.UnmarshalText([]byte(*level)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: lv}))
	logrus.SetOutput(os.Stderr)
	logrus.SetLevel(logrus.WarnLevel)

	// Small rather than fast: it is mostly idle, and there is one on every node.
	debug.SetGCPercent(40)
	debug.SetMemoryLimit(64 << 20)
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4))
	// libcontainer passes this variable, and only it, on to init processes,
	// which use one thread.
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
		return err
	}

	build, err := shim.BuildID("/proc/self/exe")
	if err != nil {
		log.Warn("nobody can tell whether this is the program that is installed", "err", err)
	}
	srv, err := server.New(server.Config{RunDir: filepath.Clean(*run), Cgroup: *cgroup, Version: version, Build: build, Log: log})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Caught and left lying, not ignored: that would be inherited by every process of
	// every container, whose terminals then hang up in vain.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	return srv.Run(ctx, tellParent)
}

// readyEnv names the descriptor on which the parent of a detached shim waits.
const readyEnv = "BERTH_SHIM_READY_FD"

// serveDetached starts the same program in a session of its own and waits until
// it serves. What it says before that goes to standard error, later to the log.
func serveDetached(run, cgroup, level string) error {
	if err := os.MkdirAll(run, 0o700); err != nil {
		return fmt.Errorf("cannot create run directory: %w", err)
	}
	logPath := filepath.Join(run, shim.LogName)
	logFile, err := os.OpenFile(logPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("cannot open log: %w", err)
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	args := []string{"serve", "--run", run, "--log-level", level}
	if cgroup != "" {
		args = append(args, "--cgroup", cgroup)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), readyEnv+"=3")
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	if b, err := io.ReadAll(r); err == nil && string(b) == "ready" {
		return cmd.Process.Release()
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == shim.AlreadyServed {
		return server.ErrServed
	}
	return fmt.Errorf("it ended at once (%w); %s says why", err, logPath)
}

// tellParent tells a waiting parent that the shim serves.
func tellParent() {
	if os.Getenv(readyEnv) == "" {
		return
	}
	_ = os.Unsetenv(readyEnv) // fails for impossible names only
	f := os.NewFile(3, "ready")
	// Nobody may be waiting any more.
	_, _ = f.WriteString("ready")
	f.Close()
}

// pause reaps what becomes its child and ends on SIGTERM or SIGINT.
func pause() {
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for sig := range sigs {
		if sig != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

// An agent in a process of its own, which can be killed. It is told what to do
// by lines of JSON on its standard input, and tells what it sees on its output.

// settings are what a process of an agent is started with.
type settings struct {
	Config agent.Config
	// KillAt is the number of the log entry, counted from 1, before which the
	// process kills itself: the agent logs the begin and the end of each action.
	// 0: never.
	KillAt int64
}

const settingsEnv = "BERTH_IT_SETTINGS"

type order struct {
	Apply  *agent.Objects `json:",omitempty"`
	Remove types.UID      `json:",omitempty"`
	Grace  *int64         `json:",omitempty"`
}

type answer struct {
	Update *agent.Update `json:",omitempty"`
	Reply  bool          `json:",omitempty"`
	Refs   []agent.Ref   `json:",omitempty"`
	Err    string        `json:",omitempty"`
}

// beAgent runs the process of an agent until its input ends.
func beAgent() int {
	if err := serveAgent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveAgent() error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsEnv)), &s); err != nil {
		return err
	}
	s.Config.Log = slog.New(&suicidal{Handler: slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}), at: s.KillAt, entries: new(atomic.Int64)})
	out := &outbox{to: json.NewEncoder(os.Stdout)}
	a, err := agent.New(context.Background(), s.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	var runErr error
	running.Go(func() { runErr = a.Run(ctx) })
	running.Go(func() {
		_ = a.Watch(ctx, func(u agent.Update, _ int) error { return out.put(answer{Update: &u}) })
	})
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			cancel()
			running.Wait()
			if !errors.Is(err, io.EOF) {
				runErr = errors.Join(runErr, err)
			}
			return errors.Join(runErr, a.Close())
		}
		reply := answer{Reply: true}
		if o.Apply != nil {
			if reply.Refs, err = a.Apply(ctx, *o.Apply); err != nil {
				reply.Err = err.Error()
			}
		} else {
			if !a.DeleteUID(o.Remove, o.Grace) {
				reply.Err = "there is no such pod"
			}
		}
		if err := out.put(reply); err != nil {
			return err
		}
	}
}

// outbox writes answers of several goroutines.
type outbox struct {
	mu sync.Mutex
	to *json.Encoder
}

func (a *outbox) put(x answer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Encode(x)
}

// suicidal is a log that kills its process before it writes a certain entry.
type suicidal struct {
	slog.Handler
	at      int64
	entries *atomic.Int64
}

func (s *suicidal) Handle(ctx context.Context, r slog.Record) error {
	if s.entries.Add(1) == s.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal is there
	}
	return s.Handler.Handle(ctx, r)
}

func (s *suicidal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &suicidal{Handler: s.Handler.WithAttrs(attrs), at: s.at, entries: s.entries}
}

func (s *suicidal) WithGroup(name string) slog.Handler {
	return &suicidal{Handler: s.Handler.WithGroup(name), at: s.at, entries: s.entries}
}

// errKilled says that the agent's process was killed.
var errKilled = errors.New("the agent was killed")

// ownProcess drives an agent in a process of its own.
type ownProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan answer

	mu    sync.Mutex // one order at a time
	ended chan struct{}
	err   error // of the process; after ended
}

// startProcess runs the node's agent in a process of its own, which kills itself
// before its killAt-th log entry; 0: never.
func (n *node) startProcess(t testing.TB, killAt int64) *ownProcess {
	t.Helper()
	cfg := n.cfg
	cfg.Log = nil
	text, err := json.Marshal(settings{Config: cfg, KillAt: killAt})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	os.Setenv(roleEnv, roleAgent)
	cmd.Env = append(os.Environ(), settingsEnv+"="+string(text))
	os.Setenv(roleEnv, roleTests)
	cmd.Stderr = n.log
	p := &ownProcess{cmd: cmd, replies: make(chan answer, 1), ended: make(chan struct{})}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		defer close(p.replies)
		lines := bufio.NewReader(out)
		for {
			l, err := lines.ReadBytes('\n')
			if err != nil {
				break // what was half written when it was killed counts for nothing
			}
			var a answer
			if err := json.Unmarshal(l, &a); err != nil {
				break
			}
			if a.Update != nil {
				n.seen.add(*a.Update)
			} else {
				p.replies <- a
			}
		}
		p.err = cmd.Wait()
	}()
	n.driver = p
	return p
}

func (p *ownProcess) order(o order) (answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.NewEncoder(p.in).Encode(o); err != nil {
		return answer{}, errKilled
	}
	a, ok := <-p.replies
	if !ok {
		return answer{}, errKilled
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

func (p *ownProcess) apply(o agent.Objects) ([]agent.Ref, error) {
	a, err := p.order(order{Apply: &o})
	return a.Refs, err
}

func (p *ownProcess) remove(uid types.UID, grace *int64) error {
	_, err := p.order(order{Remove: uid, Grace: grace})
	return err
}

// stop ends the process gracefully.
func (p *ownProcess) stop() error {
	_ = p.in.Close()
	<-p.ended
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil // the test has killed it
	}
	return p.err
}

// kill ends the process at once.
func (p *ownProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	<-p.ended
}

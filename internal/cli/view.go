package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

// view shows a run. One goroutine calls it.
type view interface {
	// begin shows the pods of the board for the first time.
	begin(b *board)
	// update shows a change of a pod, which the board knows already.
	update(u agent.Update, p *podState, before *corev1.PodStatus)
	// log shows a line that a container of the pod wrote.
	log(p *podState, l nodeapi.LogLine)
	// note shows what berth itself has to say.
	note(text string)
	// flush is called when there is nothing more to show for now, and tick a few
	// times a second.
	flush()
	tick(now time.Time)
	// end leaves the final state behind.
	end()
}

// newView chooses how a run is shown: live, plain or json; auto: live on a
// terminal, else plain.
func (a *app) newView(kind string) (view, error) {
	out, isFile := asFile(a.out)
	onTerminal := isFile && term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" //nolint:gosec // a descriptor fits
	if kind == "auto" {
		kind = "plain"
		if onTerminal {
			kind = "live"
		}
	}
	switch kind {
	case "plain":
		return &plainView{out: newOutput(a.out), errOut: a.err, teller: newTeller()}, nil
	case "json":
		return &jsonView{out: newOutput(a.out), errOut: a.err}, nil
	case "live":
		if !onTerminal {
			return nil, usageError("-o live needs a terminal as output")
		}
		return newLiveView(a, out), nil
	}
	return nil, usageError("-o is %q, want auto, live, plain or json", kind)
}

// newOutput collects what is written until it is flushed, or a lot. Errors are
// not looked at: a reader that left makes itself known by SIGPIPE, and the pods
// are stopped.
func newOutput(w io.Writer) *bufio.Writer { return bufio.NewWriterSize(w, 64<<10) }

// lostText stands where lines may be missing.
const lostText = "(lines may be missing here: the log was rotated faster than it could be read)"

// plainView writes one line a change, and the logs with their origin before.
type plainView struct {
	out    *bufio.Writer
	errOut io.Writer
	teller *teller
	line   []byte
}

func (v *plainView) begin(*board) {}

func (v *plainView) update(u agent.Update, p *podState, before *corev1.PodStatus) {
	for _, c := range v.teller.update(u, p, before) {
		fmt.Fprintf(v.out, "%s: %s\n", c.who, c.what)
	}
}

func (v *plainView) log(p *podState, l nodeapi.LogLine) {
	// Logs and statuses come on different ways: what is written comes after the
	// start.
	for _, c := range v.teller.start(p.name+"/"+l.Container, l.Attempt) {
		fmt.Fprintf(v.out, "%s: %s\n", c.who, c.what)
	}
	v.line = append(v.line[:0], p.name...)
	v.line = append(v.line, '/')
	v.line = append(v.line, l.Container...)
	v.line = append(v.line, " | "...)
	if l.Lost {
		v.line = append(v.line, lostText...)
	}
	v.line = append(v.line, l.Text...)
	v.line = append(v.line, '\n')
	_, _ = v.out.Write(v.line)
}

func (v *plainView) note(text string) {
	v.flush()
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(v.errOut, "berth: %s\n", line)
	}
}

func (v *plainView) flush()         { _ = v.out.Flush() }
func (v *plainView) tick(time.Time) {}
func (v *plainView) end()           { v.flush() }

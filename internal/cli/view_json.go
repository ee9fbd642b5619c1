package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

// record is one line of berth run -o json.
type record struct {
	Time time.Time `json:"time"`
	Pod  string    `json:"pod"` // namespace/name
	UID  types.UID `json:"uid"`
	Kind string    `json:"kind"` // status, event or log; exactly that member is there

	Status *corev1.PodStatus `json:"status,omitempty"`
	Gone   bool              `json:"gone,omitempty"` // with kind status: nothing of the pod is left
	// Stopping, with kind status, says that the pod is being stopped.
	Stopping bool         `json:"stopping,omitempty"`
	Event    *agent.Event `json:"event,omitempty"`
	Log      *recordLog   `json:"log,omitempty"`
}

type recordLog struct {
	Container string `json:"container"`
	Attempt   int    `json:"attempt"` // counts the container's starts, from 0
	Stream    string `json:"stream"`  // stdout or stderr
	Line      string `json:"line"`
	Partial   bool   `json:"partial,omitempty"` // it goes on in the next line
	Lost      bool   `json:"lost,omitempty"`    // lines before may be missing; there is no line here
}

// jsonView writes one JSON object a line.
type jsonView struct {
	out    *bufio.Writer
	errOut io.Writer
}

func (v *jsonView) write(r record) {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("cli: a status that was decoded cannot be encoded: %v", err))
	}
	_, _ = v.out.Write(append(data, '\n'))
}

func (v *jsonView) begin(*board) {}

func (v *jsonView) update(u agent.Update, p *podState, _ *corev1.PodStatus) {
	r := record{Time: u.Time, Pod: p.ref.Namespace + "/" + p.ref.Name, UID: p.ref.UID, Kind: "status"}
	switch u.Kind {
	case agent.StatusUpdate:
		r.Status, r.Stopping = u.Status, p.stopping()
	case agent.GoneUpdate:
		r.Status, r.Gone = p.status, true
	case agent.EventUpdate:
		r.Kind, r.Event = "event", u.Event
	case agent.ProgressUpdate:
		return
	}
	v.write(r)
}

func (v *jsonView) log(p *podState, l nodeapi.LogLine) {
	v.write(record{
		Time: l.Time, Pod: p.ref.Namespace + "/" + p.ref.Name, UID: p.ref.UID, Kind: "log",
		Log: &recordLog{Container: l.Container, Attempt: l.Attempt, Stream: l.Stream, Line: string(l.Text), Partial: l.Partial, Lost: l.Lost},
	})
}

func (v *jsonView) note(text string) {
	v.flush()
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(v.errOut, "berth: %s\n", line)
	}
}

func (v *jsonView) flush()         { _ = v.out.Flush() }
func (v *jsonView) tick(time.Time) {}
func (v *jsonView) end()           { v.flush() }

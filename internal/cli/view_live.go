package cli

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/nodeapi"
)

const (
	// frameTime is the shortest time between two frames.
	frameTime = 100 * time.Millisecond
	// keptLines is how many log lines a tall terminal can show.
	keptLines = 200
)

// liveView redraws a table of the pods and, below, their latest log lines.
type liveView struct {
	screen *screen
	size   func() (width, height int)
	style  style
	app    *app

	board   *board
	logs    []logRow // the latest, at most keptLines
	origins map[string]int
	dirty   bool
	drawn   time.Time
	own     heldLines
	restore func()
}

// heldLines keeps what is written until somebody takes it. It is safe for
// concurrent use.
type heldLines struct {
	mu   sync.Mutex
	text []byte
}

// maxHeld is how much is kept, in bytes.
const maxHeld = 64 << 10

func (h *heldLines) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.text)+len(p) <= maxHeld {
		h.text = append(h.text, p...)
	}
	return len(p), nil
}

func (h *heldLines) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := string(h.text)
	h.text = nil
	return text
}

// printOwn prints what berth logged.
func (v *liveView) printOwn() {
	for line := range strings.Lines(v.own.take()) {
		v.above(strings.TrimRight(line, "\n"))
	}
}

type logRow struct {
	origin string
	colour int
	text   string
	stderr bool
}

func newLiveView(a *app, out *os.File) *liveView {
	return &liveView{
		screen:  &screen{out: out},
		size:    func() (int, int) { return terminalSize(out) },
		style:   style{colour: os.Getenv("NO_COLOR") == ""},
		app:     a,
		origins: make(map[string]int),
	}
}

func terminalSize(f *os.File) (width, height int) {
	w, h, err := term.GetSize(int(f.Fd())) //nolint:gosec // a descriptor fits
	if err != nil || w <= 0 || h <= 0 {
		return 80, 24
	}
	return w, h
}

func (v *liveView) begin(b *board) {
	v.board, v.dirty = b, true
	// Berth's own log appears above the table. Its writers may be any goroutine;
	// tick prints what they left.
	before := v.app.log.target.set(&v.own)
	v.restore = func() {
		v.app.log.target.set(before)
		v.printOwn()
	}
	v.tick(time.Now())
}

func (v *liveView) update(agent.Update, *podState, *corev1.PodStatus) { v.dirty = true }

func (v *liveView) log(p *podState, l nodeapi.LogLine) {
	origin := p.name + "/" + l.Container
	colour, ok := v.origins[origin]
	if !ok {
		colour = len(v.origins)
		v.origins[origin] = colour
	}
	if len(v.logs) == keptLines {
		copy(v.logs, v.logs[1:])
		v.logs = v.logs[:keptLines-1]
	}
	if l.Lost {
		l.Text = []byte(lostText)
	}
	v.logs = append(v.logs, logRow{origin, colour, string(l.Text[:min(len(l.Text), 4096)]), l.Stream == "stderr"})
	v.dirty = true
}

func (v *liveView) note(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		v.above("berth: " + line)
	}
}

// above prints a line that stays.
func (v *liveView) above(line string) {
	if width, height := v.size(); v.screen.resized(width, height) {
		v.draw(time.Now(), width, height)
	}
	v.screen.above(printable(line))
}

func (v *liveView) flush() {}

func (v *liveView) tick(now time.Time) {
	v.printOwn()
	width, height := v.size()
	if v.screen.resized(width, height) {
		v.dirty = true
	}
	// Ages change once a second.
	if !v.dirty && now.Sub(v.drawn) < time.Second {
		return
	}
	v.draw(now, width, height)
}

func (v *liveView) draw(now time.Time, width, height int) {
	v.dirty, v.drawn = false, now
	// The cursor is on the line after the frame.
	v.screen.draw(v.frame(now, width, height-1), width, height)
}

// frame is what is shown in so many lines: the table, a line between, the logs.
func (v *liveView) frame(now time.Time, width, height int) []string {
	logHeight := max(0, min(len(v.logs), max(height/3, min(height-3, 8))))
	if height <= leastForTitle {
		logHeight = 0 // what is so low shows how the pods are
	}
	lines := table(v.board.pods, now, width, height-logHeight-1, v.style)
	if logHeight == 0 {
		lines = table(v.board.pods, now, width, height, v.style)
	}
	if room := height - len(lines) - 1; room > logHeight {
		logHeight = min(len(v.logs), room)
	}
	if logHeight <= 0 {
		return lines
	}
	lines = append(lines, v.style.dim(strings.Repeat("─", width)))
	for _, l := range v.logs[len(v.logs)-logHeight:] {
		lines = append(lines, v.logLine(l, width))
	}
	return lines
}

// leastForOrigin is how wide a terminal must be for the names of those who wrote
// the lines. On a narrower one the colour tells.
const leastForOrigin = 20

func (v *liveView) logLine(l logRow, width int) string {
	if width < leastForOrigin {
		return v.style.origin(l.colour, cut("| ", width)) + cut(printable(l.text), width-2)
	}
	origin := cutOrigin(l.origin, max(width/3, 8))
	text := cut(printable(l.text), width-cells(origin)-3)
	return v.style.origin(l.colour, origin) + v.style.dim(" | ") + text
}

func (v *liveView) end() {
	if v.board == nil {
		return
	}
	v.dirty = true
	v.tick(time.Now())
	v.screen.end()
	v.restore()
}

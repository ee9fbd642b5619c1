package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/nodeapi"
)

// terminal is just enough of one to see what is left on it: it folds lines at its
// width and scrolls at its height, as real ones do.
type terminal struct {
	width, height int
	// folds says that lines are folded anew when the width changes, as by most;
	// else they are cut off, as by xterm.
	folds bool

	history [][]rune // what has scrolled off
	rows    []vtRow  // height of them
	row     int
	col     int // width: the next character begins a new line
}

type vtRow struct {
	text []rune
	goes bool // it goes on in the next row
}

func newTerminal(width, height int, folds bool) *terminal {
	return &terminal{width: width, height: height, folds: folds, rows: make([]vtRow, height)}
}

func (s *terminal) Write(p []byte) (int, error) {
	text := string(p)
	for len(text) > 0 {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			i := strings.IndexFunc(rest, func(r rune) bool { return r >= 'A' && r <= 'z' })
			arg, code := rest[:i], rest[i]
			text = rest[i+1:]
			s.col = min(s.col, s.width-1)
			switch code {
			case 'A':
				n := 0
				fmt.Sscan(arg, &n)
				s.row = max(s.row-n, 0)
			case 'K':
				s.clear()
			case 'J':
				s.clear()
				for i := s.row + 1; i < s.height; i++ {
					s.rows[i] = vtRow{}
				}
			}
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch r {
		case '\n':
			s.down()
		case '\r':
			s.col = 0
		default:
			s.put(r)
		}
	}
	return len(p), nil
}

func (s *terminal) clear() {
	row := &s.rows[s.row]
	row.text, row.goes = row.text[:min(s.col, len(row.text))], false
}

func (s *terminal) put(r rune) {
	n := runeCells(r)
	if s.col+n > s.width {
		s.rows[s.row].goes = true
		s.down()
		s.col = 0
	}
	row := &s.rows[s.row]
	for len(row.text) < s.col+n {
		row.text = append(row.text, ' ')
	}
	row.text[s.col] = r
	s.col += n
}

func (s *terminal) down() {
	if s.row++; s.row == s.height {
		s.scroll()
		s.row--
	}
}

func (s *terminal) scroll() {
	s.history = append(s.history, s.rows[0].text)
	s.rows = append(s.rows[1:], vtRow{})
}

// resize is done with the cursor at the beginning of a line. Lines that have no room
// leave at the top; when there is room again, they come back.
func (s *terminal) resize(width, height int) {
	var rows []vtRow
	cursor := s.row
	for i, r := range s.rows {
		if !s.folds {
			r.text = r.text[:min(len(r.text), width)]
		}
		if i == s.row {
			cursor = len(rows)
		}
		for ; len(r.text) > width; r.text = r.text[width:] {
			rows = append(rows, vtRow{r.text[:width:width], true})
		}
		rows = append(rows, r)
	}
	for height > s.height && len(s.history) > 0 && len(rows) < height {
		last := len(s.history) - 1
		rows = append([]vtRow{{text: s.history[last]}}, rows...)
		s.history = s.history[:last]
		cursor++
	}
	for len(rows) > height && cursor < len(rows)-1 && len(rows[len(rows)-1].text) == 0 {
		rows = rows[:len(rows)-1] // nothing is below
	}
	for ; len(rows) > height; cursor-- {
		s.history = append(s.history, rows[0].text)
		rows = rows[1:]
	}
	for len(rows) < height {
		rows = append(rows, vtRow{})
	}
	s.width, s.height, s.rows, s.row, s.col = width, height, rows, max(cursor, 0), 0
}

func (s *terminal) text() string {
	var b strings.Builder
	for _, r := range s.rows {
		b.WriteString(strings.TrimRight(string(r.text), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func TestScreenRedrawsInPlace(t *testing.T) {
	term := newTerminal(80, 24, true)
	s := &screen{out: term}
	draw := func(width int, lines ...string) { s.draw(lines, width, 24) }
	draw(80, "one", "two", "three")
	draw(80, "one", "TWO!", "three")
	if got := term.text(); got != "one\nTWO!\nthree" {
		t.Errorf("after a change:\n%s", got)
	}
	draw(80, "1")
	if got := term.text(); got != "1" {
		t.Errorf("after shrinking:\n%s", got)
	}
	s.above("a message")
	draw(80, "1", "2")
	if got := term.text(); got != "a message\n1\n2" {
		t.Errorf("after a message and growing:\n%s", got)
	}
	term.resize(40, 24)
	draw(40, "1", "2")
	if got := term.text(); got != "a message\n1\n2" {
		t.Errorf("after resizing:\n%s", got)
	}
	full := strings.Repeat("─", 40)
	draw(40, "1", full)
	draw(40, "2", full)
	if got := term.text(); got != "a message\n2\n"+full {
		t.Errorf("with a line as wide as the terminal:\n%s", got)
	}
	s.end()
	fmt.Fprint(term, "prompt")
	if got := term.text(); got != "a message\n2\n"+full+"\nprompt" {
		t.Errorf("at the end:\n%s", got)
	}
}

func TestScreenWritesNothingWithoutAChange(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out}
	s.draw([]string{"one"}, 80, 24)
	out.Reset()
	s.draw([]string{"one"}, 80, 24)
	if out.Len() > 0 {
		t.Errorf("it writes %q", out.String())
	}
}

// Whatever becomes of the terminal, what is on it is the frame for its size, and
// above it nothing of frames before.
func TestTheLiveViewIsRightAtAnySizeAndAfterResizes(t *testing.T) {
	sizes := [][2]int{{80, 24}, {30, 24}, {10, 24}, {100, 24}, {20, 5}, {10, 3}, {33, 3}, {80, 24}, {80, 4}, {80, 24}, {12, 40}, {80, 12}, {10, 10}}
	for _, folds := range []bool{true, false} {
		term := newTerminal(80, 24, folds)
		v := &liveView{
			screen: &screen{out: term}, size: func() (int, int) { return term.width, term.height },
			app: &app{log: &logging{target: &switchWriter{}}}, origins: make(map[string]int), board: &board{pods: somePods(t)},
		}
		for i := range 40 {
			v.log(v.board.pods[i%2], nodeapi.LogLine{Container: "application", Text: fmt.Appendf(nil, "line %d %s", i, strings.Repeat("x", i*3))})
		}
		fmt.Fprint(term, "$ berth run\r\n")
		now := epoch.Add(time.Minute)
		v.tick(now)
		for i, size := range sizes {
			term.resize(size[0], size[1])
			if i%3 == 2 {
				v.note("a note")
				v.dirty = true // the note may have drawn it, at the time of the clock
			}
			v.tick(now)
			want := v.frame(now, size[0], size[1]-1)
			for j := range want {
				want[j] = strings.TrimRight(want[j], " ")
			}
			text := term.text()
			if !strings.HasSuffix(text, strings.Join(want, "\n")) {
				t.Fatalf("folds %t, size %v:\n%s\nwant at its end:\n%s", folds, size, text, strings.Join(want, "\n"))
			}
			above := strings.TrimSuffix(text, strings.Join(want, "\n"))
			for _, of := range []string{"STATE", "│", "─", "line ", "ErrIma", "more:"} {
				if strings.Contains(above, of) {
					t.Fatalf("folds %t, size %v: something of an older frame is left:\n%s", folds, size, text)
				}
			}
		}
	}
}

func TestFramesFitAtAnySize(t *testing.T) {
	for _, names := range [][]string{{"web"}, {"web", "a-pod-with-quite-a-long-name"}} {
		v := &liveView{board: &board{}, origins: make(map[string]int)}
		for _, name := range names {
			p := parsePod(t, name, "Running application-server=wait:CrashLoopBackOff:Back-off sidecar=ready")
			p.since = epoch
			v.board.pods = append(v.board.pods, p)
		}
		for i := range 30 {
			v.log(v.board.pods[0], nodeapi.LogLine{Container: "application-server", Text: fmt.Appendf(nil, "%d 日本語 %s", i, strings.Repeat("x", 90))})
		}
		for width := 1; width < 130; width++ {
			for height := range 40 {
				frame := v.frame(epoch, width, height)
				if len(frame) > height {
					t.Fatalf("%dx%d: %d lines", width, height, len(frame))
				}
				if height > 0 && len(frame) == 0 {
					t.Fatalf("%dx%d: nothing is shown", width, height)
				}
				for _, l := range frame {
					if cells(l) > width {
						t.Fatalf("%dx%d: %d cells: %q", width, height, cells(l), l)
					}
				}
			}
		}
		// What matters most is there on the smallest.
		if frame := strings.Join(v.frame(epoch, 10, 2), "\n"); !strings.Contains(frame, "Cr") {
			t.Errorf("on a terminal of 10 by 3:\n%s", frame)
		}
	}
}

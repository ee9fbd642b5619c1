package cli

import (
	"bytes"
	"io"
	"slices"
	"strconv"
)

// screen redraws a few lines at the bottom of a terminal in place. It writes a
// frame at once and only the lines that changed, so that nothing flickers. What
// was printed before, and with above, stays in the terminal's history.
//
// What a terminal does with its lines when it is resized, differs: most fold those
// that are too long now, some cut them off. Both are to end with a frame that is
// right; what may be lost is a line above it.
type screen struct {
	out           io.Writer
	lines         []string // what is drawn; the cursor is at the beginning of the line after
	width, height int      // of the terminal when they were drawn
	// scrolled is how many lines of former frames have left a terminal that became
	// too low for them, and come back when it grows.
	scrolled int
	buf      bytes.Buffer
}

const (
	beginFrame = "\x1b[?2026h\x1b[?25l" // synchronised where the terminal can; no cursor
	endFrame   = "\x1b[?2026l"
	showCursor = "\x1b[?25h"
	clearLine  = "\r\x1b[K" // before what is written: after it, the last cell of a full line would go
	clearBelow = "\x1b[J"
)

// resized says that what is drawn was drawn for another size.
func (s *screen) resized(width, height int) bool {
	return len(s.lines) > 0 && (width != s.width || height != s.height)
}

// draw shows lines instead of those drawn before. None of them may be wider than
// width cells, and they must be fewer than height.
func (s *screen) draw(lines []string, width, height int) {
	if width == s.width && height == s.height && slices.Equal(lines, s.lines) {
		return
	}
	s.buf.WriteString(beginFrame)
	if s.resized(width, height) {
		s.up(s.rows(width, height))
		s.buf.WriteString(clearBelow)
		s.lines = nil
	}
	s.up(len(s.lines))
	for i, line := range lines {
		if i < len(s.lines) && s.lines[i] == line {
			s.buf.WriteString("\r\n")
			continue
		}
		s.buf.WriteString(clearLine + line + "\r\n")
	}
	if len(lines) < len(s.lines) {
		s.buf.WriteString(clearBelow)
	}
	s.buf.WriteString(endFrame)
	s.lines, s.width, s.height = slices.Clone(lines), width, height
	s.flush()
}

// rows is how many of the terminal's lines above the cursor hold what is drawn, now
// that it has another size.
func (s *screen) rows(width, height int) int {
	n := 0
	for _, line := range s.lines {
		n += max(1, (cells(printable(line))+width-1)/max(width, 1))
	}
	if grown := min(s.scrolled, height-s.height); grown > 0 {
		s.scrolled -= grown
		n += grown
	}
	s.scrolled += max(0, n+1-height)
	return n
}

// above prints a line that stays, before those that are redrawn.
func (s *screen) above(line string) {
	s.buf.WriteString(beginFrame)
	s.up(len(s.lines))
	s.buf.WriteString("\r" + clearBelow + line + "\r\n")
	for _, l := range s.lines {
		s.buf.WriteString(l + "\r\n")
	}
	s.buf.WriteString(endFrame)
	s.scrolled = 0 // what comes back first now is the line
	s.flush()
}

// end leaves what is drawn where it is.
func (s *screen) end() {
	s.buf.WriteString(showCursor)
	s.lines = nil
	s.flush()
}

func (s *screen) up(n int) {
	if n > 0 {
		s.buf.WriteString("\x1b[" + strconv.Itoa(n) + "A\r")
	}
}

func (s *screen) flush() {
	// A terminal that is gone ends the run by SIGHUP.
	_, _ = s.out.Write(s.buf.Bytes())
	s.buf.Reset()
}

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
type screen struct {
	out   io.Writer
	lines []string // what is drawn; the cursor is at the beginning of the line after
	width int
	buf   bytes.Buffer
}

const (
	beginFrame = "\x1b[?2026h\x1b[?25l" // synchronised where the terminal can; no cursor
	endFrame   = "\x1b[?2026l"
	showCursor = "\x1b[?25h"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// draw shows lines, none of which may be wider than width cells, instead of
// those drawn before.
func (s *screen) draw(lines []string, width int) {
	if width == s.width && slices.Equal(lines, s.lines) {
		return
	}
	all := width != s.width
	s.buf.WriteString(beginFrame)
	if all && len(s.lines) > 0 {
		// The terminal has folded what was drawn: how, differs. Begin anew on
		// what is visible.
		s.up(len(s.lines))
		s.buf.WriteString(clearBelow)
		s.lines = nil
	}
	s.up(len(s.lines))
	for i, line := range lines {
		if i < len(s.lines) && s.lines[i] == line {
			s.buf.WriteString("\r\n")
			continue
		}
		s.buf.WriteString("\r" + line + clearLine + "\r\n")
	}
	if len(lines) < len(s.lines) {
		s.buf.WriteString(clearBelow)
	}
	s.buf.WriteString(endFrame)
	s.lines, s.width = slices.Clone(lines), width
	s.flush()
}

// above prints a line that stays, before those that are redrawn.
func (s *screen) above(line string) {
	s.buf.WriteString(beginFrame)
	s.up(len(s.lines))
	s.buf.WriteString("\r" + clearBelow + line + "\r\n")
	for _, l := range s.lines {
		s.buf.WriteString(l + clearLine + "\r\n")
	}
	s.buf.WriteString(endFrame)
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

package cli

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// printable is text without escape sequences and control characters, tabs as
// spaces: what can be shown within one line of a terminal.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == unicode.ReplacementChar
	}) {
		return text
	}
	var b strings.Builder
	rs := []rune(text)
	for i := 0; i < len(rs); i++ {
		switch r := rs[i]; {
		case r == 0x1b:
			i = skipEscape(rs, i)
		case r == '\t':
			b.WriteString("    ")
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// skipEscape returns the index of the last rune of the escape sequence at i.
func skipEscape(rs []rune, i int) int {
	if i+1 >= len(rs) {
		return i
	}
	switch rs[i+1] {
	case '[': // ends with a letter or so
		for j := i + 2; j < len(rs); j++ {
			if rs[j] >= 0x40 && rs[j] <= 0x7e {
				return j
			}
		}
		return len(rs) - 1
	case ']', 'P', '_', '^', 'X': // ends with BEL or ST
		for j := i + 2; j < len(rs); j++ {
			if rs[j] == 0x07 {
				return j
			}
			if rs[j] == 0x1b && j+1 < len(rs) && rs[j+1] == '\\' {
				return j + 1
			}
		}
		return len(rs) - 1
	}
	return i + 1
}

// wrapping is what errors about sandboxes and images begin with, and messages of
// pods whose time was up, and the pod's line or the reason before says already.
var wrapping = regexp.MustCompile(`^(not done when the --timeout of berth run was over, [^ :]+: |Back-off pulling image "[^"]*": |Failed to create pod sandbox: |cannot (run|make|create) sandbox of pod \S+: |cannot connect the sandbox: |cannot set up the pod's network: )+`)

// hexID is an id of a container or sandbox, or a digest.
var hexID = regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`)

// brief is a message's first line with what is new in it first, and with short
// ids, so that the same trouble makes the same line.
func brief(message string) string {
	message = wrapping.ReplaceAllString(oneLine(message), "")
	return hexID.ReplaceAllStringFunc(message, func(id string) string {
		if strings.HasPrefix(id, "sha256:") {
			return id
		}
		return id[:12]
	})
}

// runeCells is how many cells of a terminal a rune takes.
func runeCells(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	case width.Neutral, width.EastAsianAmbiguous, width.EastAsianHalfwidth, width.EastAsianNarrow:
	}
	return 1
}

func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// cut shortens printable text to so many cells, with an ellipsis.
func cut(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if cells(s) <= limit {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		w := runeCells(r)
		if n+w > limit-1 {
			break
		}
		n += w
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// cutOrigin shortens POD/CONTAINER to so many cells. The pod's name gives way
// first: within a pod the container's tells lines apart.
func cutOrigin(origin string, limit int) string {
	i := strings.LastIndexByte(origin, '/')
	if i < 0 || cells(origin) <= limit {
		return cut(origin, limit)
	}
	pod, container := origin[:i], origin[i:]
	if room := limit - cells(container); room >= 2 {
		return cut(pod, room) + container
	}
	return cut("…"+container, limit)
}

// pad fills text up with spaces, or cuts it, to exactly so many cells.
func pad(s string, size int) string {
	s = cut(s, size)
	return s + strings.Repeat(" ", max(size-cells(s), 0))
}

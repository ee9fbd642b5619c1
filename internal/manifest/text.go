package manifest

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxFileBytes is the most a file, or standard input, may hold.
	MaxFileBytes = 16 << 20
	// MaxDocumentBytes is the most one document of a file may hold. It is what
	// an API server takes in one request.
	MaxDocumentBytes = 3 << 20
	// maxDocuments bounds what one file may hold: parsing a document costs far
	// more than its few bytes.
	maxDocuments = 10_000
)

func megabytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// document is one YAML document, or one JSON value, of a file.
type document struct {
	data      []byte
	firstLine int // lines of the file before data

	// fromYAML gives, for each line as YAML counts them, the lines of data
	// before it. It is nil when both count alike.
	fromYAML []int
}

// oddBreaks are characters that end a line for YAML, and not for editors.
const oddBreaks = "\u0085\u2028\u2029"

// countLines fills in fromYAML.
func (d document) countLines() document {
	if !bytes.ContainsAny(d.data, oddBreaks) {
		return d
	}
	line := 0
	d.fromYAML = []int{0}
	for _, r := range string(d.data) {
		if r == '\n' {
			line++
		}
		if r == '\n' || strings.ContainsRune(oddBreaks, r) {
			d.fromYAML = append(d.fromYAML, line)
		}
	}
	return d
}

// fileLine is the line of the file for a line of the YAML parser's, which
// counts from 1.
func (d document) fileLine(line int) int {
	if d.fromYAML != nil && line >= 1 {
		line = d.fromYAML[min(line, len(d.fromYAML))-1] + 1
	}
	return d.firstLine + max(line, 1)
}

// lineOf is the line in the file of the byte at offset.
func (d document) lineOf(offset int) int {
	offset = min(max(offset, 0), len(d.data))
	return d.firstLine + 1 + bytes.Count(d.data[:offset], []byte("\n"))
}

// checkText says why data can't be a manifest at all. It returns the text
// without its byte order mark.
func checkText(data []byte) ([]byte, *Problem) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	bad := func(line int, message, hint string) ([]byte, *Problem) {
		return nil, &Problem{Line: line, Rule: RuleText, Message: message, Hint: hint}
	}
	switch {
	case len(data) > MaxFileBytes:
		return bad(0, "the file is larger than "+megabytes(MaxFileBytes), "split it")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return bad(0, "the file is UTF-16 text, want UTF-8", "save it as UTF-8, for example with iconv -f UTF-16 -t UTF-8")
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return bad(0, "the file is compressed with gzip", "unpack it first")
	case bytes.HasPrefix(data, []byte("\x7fELF")):
		return bad(0, "the file is a program, not a manifest", "")
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		if isWide(data) {
			return bad(0, "the file is UTF-16 or UTF-32 text, want UTF-8", "save it as UTF-8")
		}
		return bad(document{data: data}.lineOf(i), "the file holds a NUL byte, so it is not text", "give a YAML or JSON file")
	}
	if !utf8.Valid(data) {
		i := 0
		for i < len(data) {
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			i += size
		}
		return bad(document{data: data}.lineOf(i), fmt.Sprintf("the byte 0x%02x is not UTF-8 text", data[i]), "save the file as UTF-8")
	}
	if i := bareReturn(data); i >= 0 {
		return bad(document{data: data}.lineOf(i), "a carriage return has no line feed after it", "save the file with Unix line ends")
	}
	for i, r := range string(data) {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return bad(document{data: data}.lineOf(i), fmt.Sprintf("the control character 0x%02x is not allowed", r), "remove it")
		}
	}
	return data, nil
}

// isWide says that data looks like text of 16 or 32 bits a character: in what is
// mostly ASCII, every other byte is zero.
func isWide(data []byte) bool {
	n := min(len(data), 64) &^ 3
	var zeros [2]int
	for i, b := range data[:n] {
		if b == 0 {
			zeros[i%2]++
		}
	}
	all := zeros[0] == n/2 && zeros[1] == n/2
	return n >= 8 && !all && (zeros[0] == n/2 || zeros[1] == n/2)
}

// bareReturn finds a carriage return that would end a line for YAML only.
func bareReturn(data []byte) int {
	for i := 0; ; i++ {
		next := bytes.IndexByte(data[i:], '\r')
		if next < 0 {
			return -1
		}
		if i += next; i+1 < len(data) && data[i+1] != '\n' {
			return i
		}
	}
}

// splitYAML cuts a file at its document marks (--- and ... at the start of a
// line). Doing it before parsing keeps the lines of one broken document from
// hiding the problems of the next. Documents of only comments and directives
// are left out. It stops after maxDocuments and one more.
func splitYAML(data []byte) []document {
	var docs []document
	start, startLine, line := 0, 0, 0
	add := func(end int) {
		if d := data[start:end]; !blank(d) {
			docs = append(docs, document{data: d, firstLine: startLine})
		}
	}
	for at := 0; at < len(data) && len(docs) <= maxDocuments; {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		switch l := data[at:next]; {
		case isMark(l, "---"):
			add(at)
			start, startLine = at, line
		case isMark(l, "..."):
			add(at)
			start, startLine = next, line+1
		}
		at = next
		line++
	}
	if len(docs) <= maxDocuments {
		add(len(data))
	}
	return docs
}

func isMark(line []byte, mark string) bool {
	if !bytes.HasPrefix(line, []byte(mark)) {
		return false
	}
	return len(line) == len(mark) || bytes.IndexByte([]byte(" \t\r\n"), line[len(mark)]) >= 0
}

// blank reports whether a document has nothing but comments, directives and its
// own mark.
func blank(data []byte) bool {
	first := true
	for line := range bytes.Lines(data) {
		if first && isMark(line, "---") {
			line = line[3:]
		}
		first = false
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

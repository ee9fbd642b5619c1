package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// looksLikeJSON reports whether the file's first character opens a JSON object
// or list. It may still be YAML in flow style.
func looksLikeJSON(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && (data[0] == '{' || data[0] == '[')
}

// jsonStart is how JSON begins, unlike YAML in flow style, whose keys seldom are in
// quotes, and unlike a template.
var jsonStart = regexp.MustCompile(`^\s*(\{\s*["}]|\[\s*(\{\s*["}]|["\[\]]))`)

// notJSON is what is wrong with a document that was meant to be JSON; nil if it
// wasn't, or nothing is.
func notJSON(doc document) *Problem {
	if isMark(doc.data, "---") {
		doc.data = append([]byte("   "), doc.data[3:]...)
	}
	if !jsonStart.Match(doc.data) {
		return nil
	}
	g := newJSONGrower(doc)
	for {
		if _, _, err := g.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			p := g.problem(err)
			return &p
		}
	}
}

// errTooDeep comes from a JSONGrower whose input is nested beyond maxDepth.
var errTooDeep = errors.New("nested too deep")

// jsonGrower reads JSON values, one after the other, with their lines. JSON is
// not left to the YAML parser because that reads some of its strings otherwise
// (surrogate pairs), and knows no values that follow each other.
type jsonGrower struct {
	doc document
	dec *json.Decoder

	// line is the line of the file at offset, which only grows.
	offset, line int
	start        int // offset of the value that is read
}

func newJSONGrower(doc document) *jsonGrower {
	dec := json.NewDecoder(bytes.NewReader(doc.data))
	dec.UseNumber()
	return &jsonGrower{doc: doc, dec: dec, line: doc.firstLine + 1}
}

// next gives the next value of the stream, io.EOF at its end. start is the
// offset at which it begins.
func (g *jsonGrower) next() (n *node, size int, err error) {
	g.start = int(g.dec.InputOffset())
	n, err = g.value(0)
	return n, int(g.dec.InputOffset()) - g.start, err
}

// lineHere is the line of the token that was just read.
func (g *jsonGrower) lineHere() int {
	to := min(int(g.dec.InputOffset()), len(g.doc.data))
	if to > g.offset {
		g.line += bytes.Count(g.doc.data[g.offset:to], []byte("\n"))
		g.offset = to
	}
	return g.line
}

func (g *jsonGrower) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	token, err := g.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{line: g.lineHere(), weight: nodeWeight}
	switch t := token.(type) {
	case nil:
		n.kind, n.text = nullNode, "null"
	case bool:
		n.kind, n.truth, n.text = boolNode, t, strconv.FormatBool(t)
	case string:
		n.kind, n.text = stringNode, t
	case json.Number:
		n.text = t.String()
		if n.whole, err = t.Int64(); err == nil {
			n.kind = intNode
			break
		}
		n.kind = floatNode
		if n.float, err = t.Float64(); err != nil {
			return nil, fmt.Errorf("the number %s is out of range", t)
		}
	case json.Delim:
		if t == '[' {
			n.kind = listNode
			err = g.list(n, depth)
		} else {
			n.kind = mapNode
			err = g.object(n, depth)
		}
		if err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (g *jsonGrower) list(n *node, depth int) error {
	for g.dec.More() {
		item, err := g.value(depth + 1)
		if err != nil {
			return inside(err)
		}
		n.items = append(n.items, item)
	}
	_, err := g.dec.Token()
	return inside(err)
}

func (g *jsonGrower) object(n *node, depth int) error {
	for g.dec.More() {
		token, err := g.dec.Token()
		if err != nil {
			return inside(err)
		}
		key, _ := token.(string)
		e := entry{key: key, line: g.lineHere()}
		if e.value, err = g.value(depth + 1); err != nil {
			return inside(err)
		}
		n.fields = append(n.fields, e)
	}
	_, err := g.dec.Token()
	return inside(err)
}

// inside turns the end of the input within a value into what it is.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// problem words an error of next.
func (g *jsonGrower) problem(err error) Problem {
	p := Problem{Rule: RuleSyntax, Line: g.doc.lineOf(int(g.dec.InputOffset()))}
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errTooDeep):
		p.Message = fmt.Sprintf("values are nested more than %d deep", maxDepth)
	case errors.Is(err, io.ErrUnexpectedEOF):
		p.Line = g.doc.lineOf(len(bytes.TrimRight(g.doc.data, "\n")))
		p.Message, p.Hint = "the JSON ends in the middle of a value", "close its braces, brackets and quotes"
	case errors.As(err, &syntax):
		at := g.wrong()
		p.Line = g.doc.lineOf(at)
		line := g.doc.data[bytes.LastIndexByte(g.doc.data[:at], '\n')+1:]
		column := utf8.RuneCount(g.doc.data[:at]) - utf8.RuneCount(g.doc.data[:len(g.doc.data)-len(line)]) + 1
		p.Message = fmt.Sprintf("not JSON at column %d: %s", column, syntax.Error())
		p.Hint = "look for a missing comma, a trailing comma or an unquoted key"
		if line, _, _ = bytes.Cut(line, []byte("\n")); bytes.Contains(line, []byte("{{")) {
			p.Hint = "this looks like a template: render it first, for example with helm template"
		}
	default:
		p.Message = "not JSON: " + err.Error()
	}
	return p
}

// wrong is the offset of the first byte that can't be there. The decoder, which reads
// token by token, knows only about where that is.
func (g *jsonGrower) wrong() int {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(g.doc.data[g.start:], new(json.RawMessage)); errors.As(err, &syntax) {
		return g.start + max(int(syntax.Offset)-1, 0)
	}
	return min(int(g.dec.InputOffset()), len(g.doc.data))
}

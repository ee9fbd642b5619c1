package manifest

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML gives the root of one document. ok is false when the document can't
// be used; then at least one problem was reported.
func parseYAML(doc document, report func(Problem)) (root *node, ok bool) {
	doc = doc.countLines()
	dec := yaml.NewDecoder(bytes.NewReader(doc.data))
	var y, rest yaml.Node
	err := dec.Decode(&y)
	if errors.Is(err, io.EOF) {
		return &node{line: doc.firstLine + 1}, true
	}
	if err != nil {
		report(syntaxProblem(doc, err))
		return nil, false
	}
	// Nothing may be left over: splitYAML found the end of the document.
	if err := dec.Decode(&rest); !errors.Is(err, io.EOF) {
		p := Problem{Rule: RuleSyntax, Line: doc.fileLine(rest.Line)}
		if err != nil {
			p.Line = syntaxProblem(doc, err).Line
		}
		p.Message, p.Hint = "not YAML: something follows the end of the document", "put a line with --- before it"
		report(p)
		return nil, false
	}
	g := &grower{
		doc: doc, report: report, budget: aliasBudget,
		made: map[*yaml.Node]*node{}, growing: map[*yaml.Node]bool{},
	}
	root = &node{line: doc.firstLine + 1}
	if len(y.Content) > 0 {
		root = g.grow(y.Content[0], 0)
	}
	return root, !g.broken
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// parserCounts tells the messages that count lines from 0 from those that count
// from 1: the parser's from the scanner's.
var parserCounts = regexp.MustCompile(`^did not find expected (<|key|node|'|')`)

// syntaxHints say what usually is behind the parser's words.
var syntaxHints = []struct{ says, message, hint string }{
	{"mapping values are not allowed in this context", "a second \": \" on the line, or a line that is indented too far", "check the indentation; quote the value if it holds \": \""},
	{"did not find expected key", "the line fits neither the mapping above it nor a new one", "check the indentation of this line and the one above"},
	{"could not find expected ':'", "a key has no \":\" after it", "write key: value, with a space after the colon"},
	{"did not find expected '-' indicator", "a list item is missing its \"- \", or is indented differently from the others", "give all items the same indentation"},
	{"did not find expected ',' or ']'", "a [ … ] list is not closed", "close it with ]"},
	{"did not find expected ',' or '}'", "a { … } mapping is not closed", "close it with }"},
	{"found unexpected end of stream", "a quote is not closed", "look for the opening quote above"},
	{"block sequence entries are not allowed in this context", "a list can't start here", "put \"- \" on its own line, below the key"},
	{"found character that cannot start any token", "a value starts with a character that YAML keeps for itself (@ ` %)", "put the value in quotes"},
	{"found undefined tag handle", "a value starts with !, which YAML reads as a tag", "put the value in quotes"},
	{"did not find expected alphabetic or numeric character", "a value starts with & or *, which YAML reads as an anchor or an alias", "put the value in quotes"},
	{"found unknown escape character", "a \\ in double quotes starts an escape that YAML does not know", "use single quotes, or write \\\\"},
	{"exceeded max depth", "values are nested far too deep", "look for a list or mapping that is not closed"},
	{"found incompatible YAML document", "the %YAML line names a version that is not supported", "remove the line"},
}

// syntaxProblem words what the YAML parser said.
func syntaxProblem(doc document, err error) Problem {
	p := Problem{Rule: RuleSyntax, Line: doc.firstLine + 1}
	text := err.Error()
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
		if parserCounts.MatchString(text) {
			line++
		}
		p.Line = doc.fileLine(line)
	}
	text = strings.TrimPrefix(text, "yaml: ")
	lines := strings.Split(string(doc.data), "\n")
	p.Line = min(p.Line, doc.firstLine+len(lines))
	if at := lineWith(lines, line, tabIndented); at > 0 {
		p.Line = doc.firstLine + at
		p.Message, p.Hint = "the line is indented with a tab", "YAML allows only spaces there"
		return p
	}
	if at := lineWith(lines, line, func(l string) bool { return strings.Contains(l, "{{") }); at > 0 {
		p.Line = doc.firstLine + at
		p.Message, p.Hint = "not YAML: this looks like a template", "render it first, for example with helm template, or quote the value"
		return p
	}
	if name, ok := strings.CutPrefix(text, "unknown anchor "); ok {
		name = strings.Trim(strings.TrimSuffix(name, " referenced"), "'")
		if at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "*"+name) }); at >= 0 {
			p.Line = doc.firstLine + at + 1
		}
		p.Message, p.Hint = "no anchor &"+name+" is defined above for the alias *"+name, "quote the value if it should start with *"
		return p
	}
	for _, h := range syntaxHints {
		if strings.Contains(text, h.says) {
			p.Message, p.Hint = "not YAML: "+h.message, h.hint
			return p
		}
	}
	p.Message, p.Hint = "not YAML: "+text, "check the indentation and the quotes"
	return p
}

// lineWith looks for a line like that where the parser stopped and just around
// it: it counts lines from 0 in some messages and from 1 in others.
func lineWith(lines []string, at int, like func(string) bool) int {
	for _, l := range []int{at, at + 1, at - 1} {
		if l >= 1 && l <= len(lines) && like(lines[l-1]) {
			return l
		}
	}
	return 0
}

func tabIndented(line string) bool {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	return strings.Contains(indent, "\t")
}

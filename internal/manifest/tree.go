package manifest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxDepth is far beyond anything the API holds (about 15).
	maxDepth = 100
	// aliasBudget bounds what YAML aliases and merges may add to a document, in
	// bytes of weight (see node.weight).
	aliasBudget = MaxDocumentBytes
	// nodeWeight is what a value costs besides its text.
	nodeWeight = 16
)

// kind of a node: what JSON knows.
type kind int

const (
	nullNode kind = iota
	boolNode
	intNode
	floatNode
	stringNode
	listNode
	mapNode
	badNode // a scalar that has no value; see node.fault
)

// node is a value of a document with its place. Nodes are not changed once they
// are built; aliases share them.
type node struct {
	kind   kind
	line   int
	text   string // scalars: as written; strings: the value
	whole  int64  // intNode
	float  float64
	truth  bool
	fields []entry // mapNode, in order, duplicates included
	items  []*node // listNode
	fault  *fault  // nil if it can be used
	binary bool    // stringNode: it was written in base64, as !!binary

	// weight is nodeWeight for each value below, plus the texts, with aliases
	// counted as often as they are used. It says what walking the node costs.
	weight int64
}

// fault is what is wrong with a value as such, wherever it stands. Who uses the value
// reports it, with its path.
type fault struct {
	rule          Rule
	message, hint string
}

// entry is one key of a mapping and its value.
type entry struct {
	key   string
	line  int
	value *node
}

// field finds a key; the first one when it is there twice.
func (n *node) field(key string) *entry {
	if n == nil || n.kind != mapNode {
		return nil
	}
	for i := range n.fields {
		if n.fields[i].key == key {
			return &n.fields[i]
		}
	}
	return nil
}

// textOf is the string at key, or "" when there is none.
func (n *node) textOf(key string) string {
	if f := n.field(key); f != nil && f.value.kind == stringNode {
		return f.value.text
	}
	return ""
}

// String names the kind for messages, with its article.
func (k kind) String() string {
	return [...]string{"empty", "a boolean", "a number", "a number", "a string", "a list", "a mapping", "no value"}[k]
}

// noun says what the node is, with its value, for messages.
func (n *node) noun() string {
	switch n.kind {
	case boolNode:
		return "the boolean " + n.text
	case intNode, floatNode:
		return "the number " + n.text
	case stringNode:
		return "the string " + quoted(n.text)
	default:
		return n.kind.String()
	}
}

// grower turns YAML nodes into ours.
type grower struct {
	doc     document
	report  func(Problem)
	made    map[*yaml.Node]*node
	growing map[*yaml.Node]bool
	budget  int64 // what aliases may still add
	broken  bool  // the document must not be used
}

// lineOf is the line of y in the file.
func (g *grower) lineOf(y *yaml.Node) int { return g.doc.fileLine(y.Line) }

func (g *grower) fail(y *yaml.Node, rule Rule, message, hint string) *node {
	if !g.broken {
		g.report(Problem{Line: g.lineOf(y), Message: message, Hint: hint, Rule: rule})
	}
	g.broken = true
	return &node{line: g.lineOf(y), weight: nodeWeight}
}

// grow makes the node for y. depth counts from the document's root.
func (g *grower) grow(y *yaml.Node, depth int) *node {
	if g.broken {
		return &node{line: g.lineOf(y), weight: nodeWeight}
	}
	if depth > maxDepth {
		return g.fail(y, RuleSyntax, fmt.Sprintf("values are nested more than %d deep", maxDepth), "")
	}
	if y.Kind == yaml.AliasNode {
		return g.alias(y, depth)
	}
	if n, ok := g.made[y]; ok {
		return n
	}
	g.growing[y] = true
	defer delete(g.growing, y)
	n := &node{line: g.lineOf(y), weight: nodeWeight}
	switch y.Kind {
	case yaml.ScalarNode:
		g.scalar(y, n)
	case yaml.SequenceNode:
		n.kind = listNode
		for _, item := range y.Content {
			child := g.grow(item, depth+1)
			n.items = append(n.items, child)
			n.weight += child.weight
		}
	case yaml.MappingNode:
		n.kind = mapNode
		g.mapping(y, n, depth)
	}
	if y.Kind != yaml.ScalarNode && y.Tag != "" && y.ShortTag() != "!!map" && y.ShortTag() != "!!seq" {
		n.fault = unknownTag(y)
	}
	if y.Anchor != "" {
		g.made[y] = n
	}
	return n
}

// alias gives the node an alias stands for, and counts what it adds.
func (g *grower) alias(y *yaml.Node, depth int) *node {
	if g.growing[y.Alias] {
		return g.fail(y, RuleSyntax, fmt.Sprintf("the alias *%s is inside the value it stands for", y.Value), "write the value out")
	}
	n := g.grow(y.Alias, depth)
	g.spend(y, n.weight)
	return n
}

func (g *grower) spend(y *yaml.Node, weight int64) {
	g.budget -= min(weight, math.MaxInt32)
	if g.budget < 0 {
		g.fail(y, RuleSyntax, "the aliases of this document expand to more than "+megabytes(aliasBudget), "write the values out instead of nesting aliases")
	}
}

// mapping fills n with the keys of y. Merged keys (<<) come last and only when
// the mapping doesn't have them itself, as in YAML.
func (g *grower) mapping(y *yaml.Node, n *node, depth int) {
	var merges []*yaml.Node
	for i := 0; i+1 < len(y.Content) && !g.broken; i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			merges = append(merges, v)
			continue
		}
		key := g.key(k)
		child := g.grow(v, depth+1)
		n.fields = append(n.fields, entry{key: key, line: g.lineOf(k), value: child})
		n.weight += child.weight + int64(len(key))
	}
	if len(merges) == 0 {
		return
	}
	have := make(map[string]bool, len(n.fields))
	for _, f := range n.fields {
		have[f.key] = true
	}
	for _, m := range merges {
		for _, from := range g.merged(m, depth) {
			for _, f := range from.fields {
				g.spend(m, nodeWeight+int64(len(f.key)))
				if !have[f.key] && !g.broken {
					have[f.key] = true
					n.fields = append(n.fields, f)
					n.weight += f.value.weight + int64(len(f.key))
				}
			}
		}
	}
}

// merged gives the mappings that a << key names.
func (g *grower) merged(m *yaml.Node, depth int) []*node {
	n := g.grow(m, depth+1)
	for _, part := range append([]*node{n}, n.items...) {
		if part.fault != nil {
			g.fail(m, part.fault.rule, part.fault.message, part.fault.hint)
			return nil
		}
	}
	if n.kind == mapNode {
		return []*node{n}
	}
	if n.kind == listNode {
		for _, item := range n.items {
			if item.kind != mapNode {
				g.fail(m, RuleSyntax, "<< merges only mappings", "")
				return nil
			}
		}
		return n.items
	}
	g.fail(m, RuleSyntax, "<< merges only mappings", "")
	return nil
}

// key gives a mapping key as a string. Keys that YAML reads as something else
// are refused where Kubernetes would silently change them.
func (g *grower) key(k *yaml.Node) string {
	if k.Kind == yaml.AliasNode {
		k = k.Alias
	}
	if k.Kind != yaml.ScalarNode {
		if k.Kind == yaml.MappingNode && k.Style&yaml.FlowStyle != 0 {
			g.fail(k, RuleSyntax, "a mapping can't be a key; this looks like a template", "render it first, for example with helm template, or quote the value")
		} else {
			g.fail(k, RuleSyntax, "a list or a mapping can't be a key", "")
		}
		return ""
	}
	var n node
	g.scalar(k, &n)
	switch {
	case n.fault != nil:
		g.fail(k, n.fault.rule, "the key "+quoted(k.Value)+" can't be used: "+n.fault.message, n.fault.hint)
		return ""
	case n.kind == stringNode:
		return n.text
	case n.kind == intNode && strconv.FormatInt(n.whole, 10) == k.Value:
		return k.Value
	case n.kind == nullNode:
		g.fail(k, RuleType, "a key is empty", "")
		return ""
	}
	if n.text == "true" || n.text == "false" {
		return n.text
	}
	g.report(Problem{Line: g.lineOf(k), Rule: RuleType,
		Message: fmt.Sprintf("the key %s is read as %s", k.Value, n.noun()), Hint: fmt.Sprintf("write %q in quotes", k.Value)})
	return k.Value
}

// oldBooleans are words that YAML 1.1, and so Kubernetes, reads as booleans.
var oldBooleans = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

// scalar fills n from a YAML scalar, by the rules of YAML 1.1 that Kubernetes
// follows.
func (g *grower) scalar(y *yaml.Node, n *node) {
	n.text = y.Value
	n.weight = nodeWeight + int64(len(y.Value))
	plain := y.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	tag := y.ShortTag()
	if truth, ok := oldBooleans[y.Value]; ok && plain && y.Style&yaml.TaggedStyle == 0 {
		n.kind, n.truth = boolNode, truth
		return
	}
	switch tag {
	case "!!str", "!!timestamp", "!!merge":
		n.kind = stringNode
		return
	case "!!null":
		n.kind = nullNode
		return
	case "!!bool", "!!int", "!!float", "!!binary":
	default:
		n.kind, n.fault = badNode, unknownTag(y)
		return
	}
	var out any
	if err := y.Decode(&out); err != nil {
		n.kind, n.fault = badNode, &fault{RuleType, "the value does not fit its tag " + tag, ""}
		return
	}
	switch v := out.(type) {
	case bool:
		n.kind, n.truth = boolNode, v
	case int:
		n.kind, n.whole = intNode, int64(v)
	case int64:
		n.kind, n.whole = intNode, v
	case uint64:
		n.kind, n.float = floatNode, float64(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			n.kind, n.fault = badNode, &fault{RuleType, y.Value + " is not a number that Kubernetes knows", ""}
			return
		}
		n.kind, n.float = floatNode, v
	case string: // of !!binary
		if !utf8.ValidString(v) {
			n.kind, n.fault = badNode, &fault{RuleType, "what !!binary stands for is not text", "remove the tag where base64 is wanted, as in data of a Secret and binaryData of a ConfigMap"}
			return
		}
		n.kind, n.text, n.binary = stringNode, v, true
	default:
		n.kind = stringNode
	}
}

func unknownTag(y *yaml.Node) *fault {
	return &fault{RuleSyntax, "the tag " + quoted(strings.TrimSpace(y.ShortTag())) + " is not known", "remove the tag"}
}

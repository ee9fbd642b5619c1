package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// locate gives the line of the field at path below root, or of its closest
// ancestor that is in the document. Paths are written as field.Path prints
// them: spec.containers[0].env[2].name, data[a.key].
func locate(root *node, path string) int {
	n, line := root, root.line
	for path != "" && n != nil {
		var next *node
		var at int
		next, at, path = step(n, path)
		if at > 0 {
			line = at
		}
		n = next
	}
	return line
}

// find gives the node at path, nil when the document doesn't have it.
func find(root *node, path string) *node {
	n := root
	for path != "" && n != nil {
		n, _, path = step(n, path)
	}
	return n
}

// step follows the first element of path. A nil node means that it leads
// nowhere.
func step(n *node, path string) (next *node, line int, rest string) {
	if inner, ok := strings.CutPrefix(path, "["); ok {
		if n.kind == listNode {
			digits, rest, found := strings.Cut(inner, "]")
			i, err := strconv.Atoi(digits)
			if !found || err != nil || i < 0 || i >= len(n.items) {
				return nil, 0, ""
			}
			return n.items[i], n.items[i].line, strings.TrimPrefix(rest, ".")
		}
		return stepKey(n, inner)
	}
	end := strings.IndexAny(path, ".[")
	name := path
	if end >= 0 {
		name, rest = path[:end], strings.TrimPrefix(path[end:], ".")
	}
	f := n.field(name)
	if f == nil {
		return nil, 0, ""
	}
	return f.value, f.line, rest
}

// stepKey follows key], where the key may itself hold brackets and dots: the
// longest key of the mapping that fits is meant.
func stepKey(n *node, inner string) (next *node, line int, rest string) {
	best := -1
	for _, f := range n.fields {
		after, ok := strings.CutPrefix(inner, f.key)
		if ok {
			after, ok = strings.CutPrefix(after, "]")
		}
		if !ok || after != "" && after[0] != '.' && after[0] != '[' || len(f.key) <= best {
			continue
		}
		best = len(f.key)
		next, line, rest = f.value, f.line, strings.TrimPrefix(after, ".")
	}
	return next, line, rest
}

// indexed puts an index where upstream's validation left it out, as in
// volumeMounts.subPath: that of the first item that has the field.
func indexed(root *node, path string) string {
	n, rest := root, path
	for rest != "" && n != nil {
		done := strings.TrimSuffix(path[:len(path)-len(rest)], ".")
		if n.kind == listNode && rest[0] != '[' {
			name := rest
			if end := strings.IndexAny(rest, ".["); end >= 0 {
				name = rest[:end]
			}
			for i, item := range n.items {
				if item.field(name) != nil {
					return fmt.Sprintf("%s[%d].%s", done, i, rest)
				}
			}
			return path
		}
		n, _, rest = step(n, rest)
	}
	return path
}

// locateValue is locate, refined: when the field is a mapping and one of its
// keys or values is the bad value, the line is that one's.
func locateValue(root *node, path string, bad any) int {
	line := locate(root, path)
	n := find(root, path)
	if n == nil || n.kind != mapNode {
		return line
	}
	text := fmt.Sprint(bad)
	for _, f := range n.fields {
		if f.key == text || f.value.kind == stringNode && f.value.text == text && text != "" {
			return f.line
		}
	}
	return line
}

// within reports whether the field at path is the one at outer or below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

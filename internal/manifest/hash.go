package manifest

import (
	"hash"
	"strconv"
)

// hashNode writes a node's content, not its place or its notation, to h.
func hashNode(h hash.Hash, n *node) {
	put := func(s string) {
		// hash.Hash never fails.
		_, _ = h.Write(strconv.AppendQuote(nil, s))
	}
	put(strconv.Itoa(int(n.kind)))
	put(strconv.Itoa(len(n.fields) + len(n.items)))
	switch n.kind {
	case boolNode:
		put(strconv.FormatBool(n.truth))
	case intNode:
		put(strconv.FormatInt(n.whole, 10))
	case floatNode:
		put(strconv.FormatFloat(n.float, 'g', -1, 64))
	case stringNode:
		put(n.text)
	case nullNode, listNode, mapNode, badNode:
	}
	for _, item := range n.items {
		hashNode(h, item)
	}
	for _, f := range n.fields {
		put(f.key)
		hashNode(h, f.value)
	}
}

// Package manifest turns bytes into Pods, ConfigMaps and Secrets, or into a
// list of everything that is wrong with them.
//
// It decodes strictly (unknown and duplicate fields are errors), applies
// upstream's own defaults, checks with upstream's own validation, as a
// Kubernetes 1.37 API server would on create, and then checks against the table
// in support.go what this node can do. Every problem is found in one pass and
// says the file, the line, the field, what is wrong and what to do.
//
// Bounds: a file may hold MaxFileBytes, a document MaxDocumentBytes; values
// nest at most maxDepth deep, a file holds maxDocuments documents and an object
// maxItems list items and keys, YAML aliases may add aliasBudget bytes, and at
// most maxProblems problems are kept for a file.
//
// What Kubernetes accepts and this package refuses: a list item that is empty
// (null), a mapping key that is a boolean or a number in a notation that would
// change it (0644), and nested Lists.
//
// Decode is pure. Only Load reads files. Nothing here starts a goroutine or
// keeps state, so everything may be called concurrently.
package manifest

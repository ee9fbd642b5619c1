package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxProblems bounds what is kept for one file, so that a file of rubbish costs
// neither memory nor the reader's evening.
const maxProblems = 1000

// Severity says whether a manifest may run with the problem in it.
type Severity int

// The severities. The zero value is an error: what is not said to be harmless
// isn't.
const (
	Error Severity = iota
	Warning
)

// Rule names the check that found a problem. Rules are for tests and machines;
// people read Message.
type Rule string

// The rules.
const (
	RuleRead      Rule = "read"          // the file could not be read
	RuleText      Rule = "text"          // not UTF-8 text, or too large
	RuleSyntax    Rule = "syntax"        // not YAML or JSON
	RuleKind      Rule = "kind"          // apiVersion or kind is missing or not ours
	RuleUnknown   Rule = "unknown-field" // no such field
	RuleDuplicate Rule = "duplicate"     // a key, or an object, is there twice
	RuleType      Rule = "type"          // a number where a string is wanted, …
	RuleInvalid   Rule = "invalid"       // upstream's validation
	RuleRejected  Rule = "rejected"      // this node can't do it: see support.go
	RuleNoEffect  Rule = "no-effect"     // accepted, and nothing happens
	RuleAdvice    Rule = "advice"        // legal, but surely not meant
)

// Problem is one thing that is wrong, or at least odd, in a manifest.
type Problem struct {
	File     string // as the user named it; "<stdin>" for -
	Line     int    // 1-based; 0: the file as a whole
	Field    string // path from the document's root, as in the API; may be empty
	Message  string // what is wrong
	Hint     string // what to do; may be empty
	Severity Severity
	Rule     Rule
}

// String gives the problem on one line, as compilers do: an editor finds the place.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Severity == Warning {
		b.WriteString("warning: ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return printable(b.String())
}

// Problems is what is wrong with some manifests, sorted by file and line, files
// in the order in which they were given.
type Problems []Problem

// Error gives all problems, one a line, warnings too.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Errors are the problems that forbid running.
func (ps Problems) Errors() Problems { return ps.with(Error) }

// Warnings are the problems one can run with.
func (ps Problems) Warnings() Problems { return ps.with(Warning) }

// Err is nil when there are only warnings, else the errors.
func (ps Problems) Err() error {
	if errs := ps.Errors(); len(errs) > 0 {
		return errs
	}
	return nil
}

func (ps Problems) with(s Severity) Problems {
	var out Problems
	for _, p := range ps {
		if p.Severity == s {
			out = append(out, p)
		}
	}
	return out
}

// sorted orders the problems of one file by line and drops exact repeats.
func (ps Problems) sorted() Problems {
	out := slices.Clone(ps)
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Field, b.Field))
	})
	return slices.Compact(out)
}

// printable keeps a problem on one line whatever was in the manifest.
func printable(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unprintable(r rune) bool {
	return r == utf8.RuneError || r != ' ' && !unicode.IsPrint(r)
}

// quoted gives a value from a manifest for a message: quoted, and cut when long.
func quoted(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

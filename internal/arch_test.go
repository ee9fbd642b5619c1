// Package internal holds no code: its test holds the packages below it to the
// arrows of docs/design.md.
package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/berth-run/berth/"

// edges are the imports that must not be, with the reason. A package stands for
// itself and all below it, except with a dot at the end: then for itself alone.
// Tests may import what they like, and named packages must exist.
var edges = []struct{ from, to, why string }{
	{"internal/lifecycle", "internal", "the core knows nothing of ours, so that it stays pure and small"},
	{"internal/lifecycle", "k8s.io/kubernetes", "upstream's helpers read global feature gates"},
	{"internal/format", "internal", "small nouns know nothing of ours"},
	{"internal/podconfig", "internal/podruntime", "rendering knows nothing of who runs what it renders"},
	{"internal/podconfig", "internal/podworker", "rendering takes values and returns a value"},
	{"internal/podconfig", "internal/status", "rendering takes values and returns a value"},
	{"internal/podconfig", "internal/cri", "rendering knows nothing of who runs what it renders"},
	{"internal/cri/ocispec", "internal", "rendering takes values and returns a value"},
	{"internal/fault", "internal/simulate", "faults know nothing of who injects them"},
	{"internal/cri", "internal/lifecycle", "the embedded CRI is an island: it knows CRI, not berth's agent"},
	{"internal/cri", "internal/podworker", "the embedded CRI is an island"},
	{"internal/cri", "internal/podruntime", "the embedded CRI is an island"},
	{"internal/cri", "internal/podstore", "the embedded CRI is an island"},
	{"internal/cri", "internal/podconfig", "the embedded CRI is an island"},
	{"internal/cri", "internal/status", "the embedded CRI is an island"},
	{"internal/cri", "internal/probe", "the embedded CRI is an island"},
	{"internal/cri", "internal/volume", "the embedded CRI is an island"},
	{"internal/cri", "internal/agent", "the embedded CRI is an island"},
	{"internal/shim", "internal/cri", "the runtime uses the shim, not the other way round"},
	{"internal/shim", "internal/lifecycle", "the shim knows containers, not pods"},
	{"internal/shim", "k8s.io", "the shim stays small: no Kubernetes packages"},
	{"internal/shim.", "github.com/opencontainers/runc", "libcontainer needs cgo: only the shim's server may import it"},
	{"internal/podworker", "internal/status", "siblings of the heart meet in agent"},
	{"internal/podworker", "internal/podstore", "siblings of the heart meet in agent"},
	{"internal/podworker", "internal/cri", "the heart meets runtimes through podruntime"},
	{"internal/podworker", "internal/shim", "the heart meets runtimes through podruntime"},
	{"internal/podworker", "internal/agent", "parts do not know who wires them"},
	{"internal/probe", "internal/podworker", "siblings of the heart meet in agent"},
	{"internal/probe", "internal/status", "siblings of the heart meet in agent"},
	{"internal/probe", "internal/cri", "the heart meets runtimes through podruntime"},
	{"internal/probe", "internal/agent", "parts do not know who wires them"},
	{"internal/status", "internal/lifecycle", "a status is decided elsewhere; here it is only sent"},
	{"internal/status", "internal/podworker", "siblings of the heart meet in agent"},
	{"internal/status", "internal/probe", "siblings of the heart meet in agent"},
	{"internal/status", "internal/podstore", "siblings of the heart meet in agent"},
	{"internal/status", "internal/agent", "parts do not know who wires them"},
	{"internal/podstore", "internal/podworker", "what is desired does not depend on what is done"},
	{"internal/podstore", "internal/status", "what is desired does not depend on what is done"},
	{"internal/podstore", "internal/agent", "parts do not know who wires them"},
	{"internal/admission", "internal/agent", "parts do not know who wires them"},
	{"internal/admission", "internal/podstore", "what chooses takes values and returns a value"},
	{"internal/manifest", "internal/agent", "parts do not know who wires them"},
	{"internal/manifest", "internal/lifecycle", "reading a manifest starts nothing"},
	{"internal/podruntime.", "internal/cri", "the contract knows no implementation"},
	{"internal/podruntime/remote", "internal/cri", "it knows CRI by its Go interfaces alone, so that any runtime fits"},
	{"internal/podruntime/remote", "internal/shim", "it knows CRI by its Go interfaces alone, so that any runtime fits"},
	{"internal/podruntime/remote", "internal/podworker", "the worker uses runtimes, not the other way round"},
	{"internal/volume", "internal/podworker", "the worker uses volumes, not the other way round"},
	{"internal/simulate", "internal/podworker", "the core's simulation runs the core, not its shell"},
	{"internal/cgroup", "internal", "small nouns know nothing of ours"},
	{"internal/agent", "internal/cli", "the agent is wired by commands, and knows none"},
	{"internal/cri/imagestore", "internal/shim", "images know no containers"},
	{"internal/cri/network", "internal/shim", "networks know no containers"},
}

// lifecycleMay is all that the core may import: no I/O, no clock, no randomness.
var lifecycleMay = []string{
	"cmp", "encoding/json", "fmt", "hash/fnv", "maps", "slices", "strings", "time",
	"k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/apis/meta/v1",
}

// pure are the packages and files that choose: they read no clock, draw no
// numbers, touch no files, wait for nothing and start nothing.
var pure = []string{
	"internal/lifecycle/", "internal/podconfig/", "internal/cri/ocispec/", "internal/admission/",
	"/plan.go", "/merge.go", "/tally.go", "/choose.go", "/rank.go",
}

// forbidden are the calls that make code impure; a trailing dot means all of a
// package.
var forbidden = []string{
	"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.Sleep", "time.NewTimer", "time.NewTicker", "time.Tick",
	"rand.", "os.", "context.",
}

// inits are the files that may have an init function, and why.
var inits = map[string]string{}

func TestImportsFollowTheArrows(t *testing.T) {
	files := sources(t)
	for _, e := range edges {
		from, alone := strings.CutSuffix(e.from, ".")
		found := false
		for _, f := range files {
			dir := filepath.ToSlash(filepath.Dir(f.path))
			if dir != from && (alone || !strings.HasPrefix(dir, from+"/")) {
				continue
			}
			found = true
			if f.test {
				continue
			}
			for _, imported := range f.imports() {
				path := strings.TrimPrefix(imported, module)
				inside := path == from || strings.HasPrefix(path, from+"/")
				if (path == e.to || strings.HasPrefix(path, e.to+"/")) && !inside {
					t.Errorf("%s imports %s: %s", f.path, imported, e.why)
				}
			}
		}
		if !found {
			t.Errorf("there is no package %s any more: take it out of the list", from)
		}
		if strings.HasPrefix(e.to, "internal/") && !slices.ContainsFunc(files, func(f source) bool {
			return strings.HasPrefix(filepath.ToSlash(f.path), e.to+"/")
		}) && e.to != "internal/cli" {
			t.Errorf("there is no package %s any more: take it out of the list", e.to)
		}
	}
}

func TestLifecycleImportsOnlyWhatIsListed(t *testing.T) {
	used := map[string]bool{}
	for _, f := range sources(t) {
		if filepath.Dir(f.path) != filepath.FromSlash("internal/lifecycle") || f.test {
			continue
		}
		for _, imported := range f.imports() {
			used[imported] = true
			if !slices.Contains(lifecycleMay, imported) {
				t.Errorf("%s imports %q, which is not on the list of what the core may import", f.path, imported)
			}
		}
	}
	if len(used) == 0 {
		t.Error("there is no package lifecycle any more")
	}
}

func TestWhatChoosesIsPure(t *testing.T) {
	checked := map[string]int{}
	for _, f := range sources(t) {
		i := slices.IndexFunc(pure, func(p string) bool { return strings.Contains(filepath.ToSlash(f.path), p) })
		if i < 0 || f.test {
			continue
		}
		checked[pure[i]]++
		for _, bad := range impurities(f.file) {
			t.Errorf("%s: %s: pure code takes it as a value, or leaves it to its shell", f.fset.Position(bad.pos), bad.what)
		}
	}
	for _, p := range []string{"internal/lifecycle/", "internal/podconfig/", "internal/cri/ocispec/", "/tally.go"} {
		if checked[p] == 0 {
			t.Errorf("nothing pure was found at %s any more", p)
		}
	}
}

type impurity struct {
	pos  token.Pos
	what string
}

func impurities(file *ast.File) []impurity {
	var bad []impurity
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad = append(bad, impurity{n.Pos(), "a go statement"})
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok || pkg.Obj != nil { // an object of this file, no package
				return true
			}
			for _, f := range forbidden {
				if name := pkg.Name + "." + n.Sel.Name; name == f || strings.HasSuffix(f, ".") && strings.HasPrefix(name, f) {
					bad = append(bad, impurity{n.Pos(), name})
				}
			}
		}
		return true
	})
	return bad
}

// The check of pure code sees what it should.
func TestImpuritiesAreSeen(t *testing.T) {
	text := "package p\nfunc f() { go f(); _ = time.Now(); os.Exit(1); _ = rand.IntN(2); context.TODO() }\n" +
		"func g(time T) { time.Now(); _ = strings.ToLower(\"\"); var os T; os.Exit() }"
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, bad := range impurities(file) {
		got = append(got, bad.what)
	}
	want := []string{"a go statement", "time.Now", "os.Exit", "rand.IntN", "context.TODO"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	said := map[string]bool{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		dir := filepath.Dir(f.path)
		said[dir] = said[dir] || f.generated() || f.file.Doc != nil && strings.HasPrefix(f.file.Doc.Text(), wantedComment(f.file.Name.Name))
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
	if len(said) < 10 {
		t.Errorf("only %d packages were found", len(said))
	}
}

func wantedComment(name string) string {
	if name == "main" {
		return ""
	}
	return "Package " + name
}

// Names that say nothing attract everything.
func TestNoPackageIsADrawer(t *testing.T) {
	bad := []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "base", "lib"}
	for _, f := range sources(t) {
		for _, part := range strings.Split(filepath.ToSlash(filepath.Dir(f.path)), "/") {
			if slices.Contains(bad, part) {
				t.Errorf("%s: a folder named %s says nothing of what it holds", f.path, part)
			}
		}
	}
}

// A list in plain sight is better than registration by init.
func TestNoInitFunctions(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range sources(t) {
		if f.test || f.generated() {
			continue
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				path := filepath.ToSlash(f.path)
				if seen[path] = true; inits[path] == "" {
					t.Errorf("%s has an init function; say why in the list, or write a list in plain sight", path)
				}
			}
		}
	}
	for path := range inits {
		if !seen[path] {
			t.Errorf("%s has no init function any more: take it out of the list", path)
		}
	}
}

// source is one Go file of the module, by its path from the module's root.
type source struct {
	path string
	file *ast.File
	fset *token.FileSet
	test bool
}

func (s source) imports() []string {
	var list []string
	for _, i := range s.file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func (s source) generated() bool { return ast.IsGenerated(s.file) }

// sources parses all Go files under internal and cmd.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	fset := token.NewFileSet()
	for _, root := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil // it went while we looked
			}
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if d.IsDir() || filepath.Ext(path) != ".go" {
				return nil
			}
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			path = strings.TrimPrefix(filepath.ToSlash(path), "../")
			list = append(list, source{path: filepath.FromSlash(path), file: file, fset: fset,
				test: strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/testutil") || strings.Contains(path, "podruntimetest")})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

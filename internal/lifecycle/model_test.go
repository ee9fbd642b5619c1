package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/model.md names the rules in the order in which decide.go asks them.
func TestModelNamesTheRulesInOrder(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "decide.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != "Decide" && fn.Name.Name != "runRules" {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				if v, ok := s.X.(*ast.Ident); ok && v.Name == "v" && s.Sel.Name != "because" {
					calls[fn.Name.Name] = append(calls[fn.Name.Name], s.Sel.Name)
				}
			}
			return true
		})
	}
	var asked []string
	for _, name := range calls["Decide"][1:] { // the first is the status of a pod never seen
		asked = append(asked, name)
		if name == "runRules" {
			asked = append(asked, calls["runRules"]...)
		}
	}
	text := section(t, "## The rules in order")
	var told []string
	for _, line := range regexp.MustCompile("(?m)^ *\\d+\\. (`\\w+`(?: and `\\w+`)?)").FindAllStringSubmatch(text, -1) {
		for _, name := range strings.Split(line[1], " and ") {
			told = append(told, strings.Trim(name, "`"))
		}
	}
	if !slices.Equal(asked, told) {
		t.Errorf("decide.go asks\n%q\ndocs/model.md names\n%q", asked, told)
	}
}

// docs/model.md tells of all reasons in reason.go, and of no others.
func TestModelTellsAllReasons(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, s)
		}
		return true
	})
	var told []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]\w+(?:, [A-Z]\w+)*) \|`).FindAllStringSubmatch(section(t, "## Reasons"), -1) {
		told = append(told, strings.Split(row[1], ", ")...)
	}
	slices.Sort(have)
	slices.Sort(told)
	if !slices.Equal(have, told) {
		t.Errorf("reason.go has\n%q\ndocs/model.md tells\n%q", have, told)
	}
}

func section(t *testing.T, title string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/model.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), title+"\n")
	if !ok {
		t.Fatalf("docs/model.md has no section %q", title)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxItems is the most list items and mapping entries that one object may have.
// Three bytes of text can make a container of many hundred.
const maxItems = 50_000

// decoder fills API types from nodes and reports all that does not fit.
type decoder struct {
	report func(line int, path *field.Path, rule Rule, message, hint string)
	full   func() bool     // further problems are only counted
	items  int             // list items and mapping entries so far
	skip   map[string]bool // paths that are left out
	secret bool            // values stay out of messages
	// moved takes the place where a misplaced field belongs; lists are written
	// without an index.
	moved func(path string)
	// above are the struct types around the value that is being decoded, the
	// outermost first, with their paths; they serve to say where a misplaced
	// field belongs.
	above []place
}

type place struct {
	typ  reflect.Type
	path *field.Path
}

// pathText is path as it is printed; the root has no name.
func pathText(path *field.Path) string {
	if path == nil {
		return ""
	}
	return path.String()
}

func (d *decoder) mismatch(n *node, path *field.Path, want, hint string) {
	noun := n.noun()
	if d.secret && !strings.HasPrefix(pathText(path), "metadata") {
		noun = n.kind.String()
	}
	d.report(n.line, path, RuleType, "is "+noun+", want "+want, hint)
}

// object decodes n into a pointer to an API type. It reports false, after a
// problem, when n has too many items to go on with.
func (d *decoder) object(n *node, to any) bool {
	d.value(n, reflect.ValueOf(to).Elem(), nil)
	return d.items <= maxItems
}

// enough counts the items of n, and reports whether they are too many.
func (d *decoder) enough(n *node, path *field.Path) bool {
	before := d.items
	d.items += len(n.items) + len(n.fields)
	if before <= maxItems && d.items > maxItems {
		d.report(n.line, path, RuleType, fmt.Sprintf("brings the object to more than %d list items and keys", maxItems), "")
	}
	return d.items > maxItems
}

// value decodes n into v.
func (d *decoder) value(n *node, v reflect.Value, path *field.Path) {
	if n.fault != nil {
		d.report(n.line, path, n.fault.rule, n.fault.message, n.fault.hint)
		if n.kind == badNode {
			return
		}
	}
	if n.kind == nullNode {
		return // as JSON: null leaves a field as it is
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
		return
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		d.special(n, v.Type(), u, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			d.bytes(n, v, path)
		} else {
			d.list(n, v, path)
		}
	case reflect.String:
		d.text(n, v, path)
	case reflect.Bool:
		d.boolean(n, v, path)
	case reflect.Int32, reflect.Int64:
		d.integer(n, v, path)
	default:
		panic(fmt.Sprintf("manifest: the API has a field of kind %s at %s", v.Kind(), pathText(path)))
	}
}

// structure decodes a mapping with known keys.
func (d *decoder) structure(n *node, v reflect.Value, path *field.Path) {
	if n.kind != mapNode {
		hint := `write its fields below it as "field: value"`
		if n.kind == listNode {
			hint = `remove the "- "`
		}
		if names := fieldsOf(v.Type()).names; n.kind == stringNode && len(names) == 1 && names[0] == "command" {
			hint = "write command: below it, as a list"
			if words := commandOf(n.text); words != "" {
				hint = "write {command: " + words + "}"
			}
		}
		d.mismatch(n, path, "a mapping", hint)
		return
	}
	d.above = append(d.above, place{v.Type(), path})
	defer func() { d.above = d.above[:len(d.above)-1] }()
	known := fieldsOf(v.Type())
	seen := make(map[string]int, len(n.fields))
	for _, f := range n.fields {
		at := child(path, f.key)
		if d.skip[pathText(at)] {
			continue
		}
		if first, ok := seen[f.key]; ok {
			d.twice(f, first, at)
			continue
		}
		seen[f.key] = f.line
		index, ok := known.index[f.key]
		if !ok {
			message, hint := d.unknown(f.key)
			d.report(f.line, at, RuleUnknown, message, hint)
			continue
		}
		d.value(f.value, v.FieldByIndex(index), at)
	}
}

func (d *decoder) twice(f entry, first int, path *field.Path) {
	d.report(f.line, path, RuleDuplicate, fmt.Sprintf("is already given on line %d", first), "remove one of the two")
}

// child is path.Child for a root that may be nil.
func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}

// mapping decodes a mapping with free keys.
func (d *decoder) mapping(n *node, v reflect.Value, path *field.Path) {
	if n.kind != mapNode {
		hint := `write each entry as "key: value"`
		if n.kind == listNode {
			hint = `write each entry as "key: value", without the "- "`
		}
		d.mismatch(n, path, "a mapping", hint)
		return
	}
	if d.enough(n, path) {
		return
	}
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.fields)))
	seen := make(map[string]int, len(n.fields))
	for _, f := range n.fields {
		at := path.Key(f.key)
		if first, ok := seen[f.key]; ok {
			d.twice(f, first, at)
			continue
		}
		seen[f.key] = f.line
		elem := reflect.New(t.Elem()).Elem()
		d.value(f.value, elem, at)
		v.SetMapIndex(reflect.ValueOf(f.key).Convert(t.Key()), elem)
	}
}

func (d *decoder) list(n *node, v reflect.Value, path *field.Path) {
	if n.kind != listNode {
		d.mismatch(n, path, "a list", listHint(n, v.Type().Elem()))
		return
	}
	if d.enough(n, path) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		at := path.Index(i)
		if item.kind == nullNode {
			hint := "remove it"
			if v.Type().Elem().Kind() == reflect.String {
				hint = `remove it, or write "" for an empty string`
			}
			d.report(item.line, at, RuleType, "is empty", hint)
			continue
		}
		d.value(item, v.Index(i), at)
	}
}

func listHint(n *node, elem reflect.Type) string {
	switch {
	case n.kind == mapNode && elem.Kind() == reflect.Struct:
		if _, ok := fieldsOf(elem).index["name"]; ok {
			return `write each item as "- name: …"`
		}
		return `start each item with "- "`
	case n.kind == stringNode && elem.Kind() == reflect.String:
		if words := commandOf(n.text); words != "" {
			return "write " + words
		}
		return `write each item on its own line, after "- "`
	}
	return `start each item with "- "`
}

// commandOf writes a simple command line as a list, "" when it is not simple.
func commandOf(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 || len(words) > 6 || strings.ContainsAny(line, `"'|&;<>$\`) {
		return ""
	}
	for i, w := range words {
		words[i] = strconv.Quote(w)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// structFields are the JSON fields of a struct type.
type structFields struct {
	index map[string][]int
	names []string // in the order of the type
}

var fieldCache sync.Map // reflect.Type → *structFields

// fieldsOf lists the JSON fields of a struct, embedded ones as if they were its
// own.
func fieldsOf(t reflect.Type) *structFields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*structFields)
	}
	fs := &structFields{index: map[string][]int{}}
	fs.add(t, nil)
	fieldCache.Store(t, fs)
	return fs
}

func (fs *structFields) add(t reflect.Type, above []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(above), i)
		switch {
		case name == "" && f.Anonymous:
			fs.add(f.Type, index)
		case name != "" && name != "-" && f.IsExported():
			fs.index[name] = index
			fs.names = append(fs.names, name)
		}
	}
}

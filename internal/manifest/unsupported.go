package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// typeSupport is a typeRules made ready for look-ups.
type typeSupport struct {
	supported map[string]bool
	rules     map[string][]rule // by field, in the order of the table
}

// supportByType indexes supportTable once, on first use.
var supportByType = sync.OnceValue(func() map[string]typeSupport {
	index := make(map[string]typeSupport, len(supportTable))
	for _, t := range supportTable {
		s := typeSupport{supported: map[string]bool{}, rules: map[string][]rule{}}
		for _, name := range strings.Fields(t.supported) {
			s.supported[name] = true
		}
		for _, r := range t.rules {
			s.rules[r.field] = append(s.rules[r.field], r)
		}
		index[t.typ] = s
	}
	return index
})

// unsupported finds what a pod, as decoded and without defaults, uses and this
// node doesn't do. The problems have no line.
func unsupported(pod *corev1.Pod) []Problem {
	var w supportWalk
	w.structure(reflect.ValueOf(&pod.Spec).Elem(), "spec")
	return w.found
}

// supportWalk holds a pod spec against the table.
type supportWalk struct{ found []Problem }

func (w *supportWalk) add(r rule, path string) {
	p := Problem{Field: path, Message: r.message, Hint: r.hint, Rule: RuleRejected}
	if r.support == NoEffect {
		p.Severity, p.Rule = Warning, RuleNoEffect
	}
	w.found = append(w.found, p)
}

func (w *supportWalk) structure(v reflect.Value, path string) {
	support, known := supportByType()[v.Type().Name()]
	if !known {
		return // a leaf with its own JSON, as Quantity
	}
	fields := fieldsOf(v.Type())
	for _, name := range fields.names {
		f := v.FieldByIndex(fields.index[name])
		if !used(f) {
			continue
		}
		at := path + "." + name
		for _, r := range support.rules[name] {
			if u := r.unless; u != nil && v.FieldByIndex(fields.index[u.field]).String() == u.value {
				continue
			}
			w.apply(r, f, at)
		}
		if support.supported[name] {
			w.below(f, at)
		}
	}
}

// below walks into whatever structs a supported field holds.
func (w *supportWalk) below(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		w.below(v.Elem(), path)
	case reflect.Struct:
		w.structure(v, path)
	case reflect.Slice:
		for i := range v.Len() {
			w.below(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// apply reports the field if the rule is about what it holds.
func (w *supportWalk) apply(r rule, v reflect.Value, path string) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case r.matches != nil:
		var keys []string
		for _, k := range v.MapKeys() {
			keys = append(keys, k.String())
		}
		slices.Sort(keys)
		for _, k := range keys {
			if r.matches(k) {
				w.add(r, path+"["+k+"]")
			}
		}
	case r.value != "":
		if text := v.String(); text == r.value || strings.HasPrefix(text, r.value+"-") {
			r.message = quoted(text) + " " + r.message
			w.add(r, path)
		}
	case !slices.ContainsFunc(r.neutral, func(n any) bool { return sameValue(n, v) }):
		w.add(r, path)
	}
}

// sameValue compares a plain value with a field whose type may have a name.
func sameValue(plain any, v reflect.Value) bool {
	p := reflect.ValueOf(plain)
	return v.Kind() == p.Kind() && p.Equal(v.Convert(p.Type()))
}

// used reports whether a manifest gave the field a value.
func used(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	default:
		return !v.IsZero()
	}
}

package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// unknown words the problem of a key that its struct does not have. The struct
// is the last of d.above.
func (d *decoder) unknown(key string) (message, hint string) {
	message = "there is no such field"
	if d.full() {
		return message, ""
	}
	here := d.above[len(d.above)-1]
	near, distance := nearest(key, fieldsOf(here.typ).names)
	if near != "" && distance <= 1 {
		return message, "did you mean " + near + "?"
	}
	if where := d.belongs(key); where != "" {
		return message, where
	}
	if near != "" {
		return message, "did you mean " + near + "?"
	}
	if names := fieldsOf(here.typ).names; len(names) <= 8 {
		return message, "it may have " + strings.Join(names, ", ")
	}
	return message, "check the spelling and the indentation"
}

// belongs says where a field of that name is at home: above (indented too far),
// or below.
func (d *decoder) belongs(key string) string {
	for i := len(d.above) - 2; i >= 0; i-- {
		p := d.above[i]
		if _, ok := fieldsOf(p.typ).index[key]; ok && key != "name" {
			d.moved(pathText(child(p.path, key)))
			return "it belongs to " + parentName(p.path) + ", which is " + levels(len(d.above)-1-i) + " up: indent it less"
		}
	}
	here := d.above[len(d.above)-1]
	if below := fieldBelow(here.typ, key, here.path); below != "" {
		d.moved(below)
		return "it belongs below, as " + below
	}
	return ""
}

func parentName(path *field.Path) string {
	if path == nil {
		return "the object itself"
	}
	return path.String()
}

func levels(n int) string {
	if n == 1 {
		return "one level"
	}
	return fmt.Sprintf("%d levels", n)
}

// favourites are looked into first, where several children have the field.
var favourites = []string{"metadata", "spec", "containers"}

// fieldBelow looks for a field named key in the structs that a struct holds, up
// to three levels down, and gives its path.
func fieldBelow(t reflect.Type, key string, path *field.Path) string {
	type stop struct {
		typ  reflect.Type
		path string
	}
	level := []stop{{t, pathText(path)}}
	for range 3 {
		var next []stop
		for _, s := range level {
			names := fieldsOf(s.typ).names
			for _, name := range append(append([]string(nil), favourites...), names...) {
				index, ok := fieldsOf(s.typ).index[name]
				if !ok || name == "status" {
					continue
				}
				elem, list := structBelow(s.typ.FieldByIndex(index).Type)
				if elem == nil {
					continue
				}
				at := name
				if s.path != "" {
					at = s.path + "." + name
				}
				if list {
					at += "[]"
				}
				if _, ok := fieldsOf(elem).index[key]; ok {
					return at + "." + key
				}
				next = append(next, stop{elem, at})
			}
		}
		level = next
	}
	return ""
}

// structBelow is the struct that a field of type t holds, nil when it holds
// none that has fields of its own.
func structBelow(t reflect.Type) (elem reflect.Type, list bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		list = list || t.Kind() == reflect.Slice
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil, false
	}
	return t, list
}

// nearest gives the name that is closest to key, and how far it is; "" when
// none is close.
func nearest(key string, names []string) (best string, distance int) {
	if len(key) > 64 {
		return "", 0
	}
	distance = max(1, len(key)/3) + 1
	for _, name := range names {
		if n := distanceOf(strings.ToLower(key), strings.ToLower(name)); n < distance {
			best, distance = name, n
		}
	}
	if best != "" {
		return best, distance
	}
	// cmd for command, vols for volumes.
	for _, name := range names {
		if abbreviates(strings.ToLower(key), strings.ToLower(name)) {
			return name, 2
		}
	}
	return "", 0
}

// abbreviates reports whether short is at least three letters of long, in order,
// and starts as it does.
func abbreviates(short, long string) bool {
	if len(short) < 3 || long == "" || short[0] != long[0] {
		return false
	}
	for i := range len(long) {
		if short != "" && long[i] == short[0] {
			short = short[1:]
		}
	}
	return short == ""
}

// distanceOf counts the letters to insert, drop, change or swap with their
// neighbour to make b from a.
func distanceOf(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

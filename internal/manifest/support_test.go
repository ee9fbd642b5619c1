package manifest

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// edge is one way to reach a type: a field of another that is supported.
type edge struct {
	from  reflect.Type
	field string
}

// edges gives, for each struct below v1.PodSpec that is reached through
// supported fields, the ways to it; the first is the shortest. Types comes in
// that order.
func edges() (to map[reflect.Type][]edge, types []reflect.Type) {
	to = map[reflect.Type][]edge{}
	root := reflect.TypeFor[corev1.PodSpec]()
	types = []reflect.Type{root}
	for i := 0; i < len(types); i++ {
		t := types[i]
		for _, name := range fieldsOf(t).names {
			if !supportByType()[t.Name()].supported[name] {
				continue
			}
			elem, _ := structBelow(t.FieldByIndex(fieldsOf(t).index[name]).Type)
			if elem == nil {
				continue
			}
			if !slices.Contains(types, elem) {
				types = append(types, elem)
			}
			to[elem] = append(to[elem], edge{t, name})
		}
	}
	return to, types
}

func TestEveryFieldIsClassified(t *testing.T) {
	_, types := edges()
	var reached []string
	for _, typ := range types {
		reached = append(reached, typ.Name())
		s, ok := supportByType()[typ.Name()]
		if !ok {
			t.Errorf("%s: the type is not in supportTable", typ.Name())
			continue
		}
		names := fieldsOf(typ).names
		for _, name := range names {
			whole := 0
			for _, r := range s.rules[name] {
				if r.value == "" && r.matches == nil && r.unless == nil {
					whole++
				} else if !s.supported[name] {
					t.Errorf("%s.%s: has a rule for some values, so it must be supported otherwise", typ.Name(), name)
				}
			}
			if s.supported[name] {
				whole++
			}
			if whole != 1 {
				t.Errorf("%s.%s: is classified %d times, want once", typ.Name(), name, whole)
			}
		}
		for name := range s.supported {
			if !slices.Contains(names, name) {
				t.Errorf("%s.%s: is in supportTable and not in the API", typ.Name(), name)
			}
		}
		for name := range s.rules {
			if !slices.Contains(names, name) {
				t.Errorf("%s.%s: is in supportTable and not in the API", typ.Name(), name)
			}
		}
	}
	for _, entry := range supportTable {
		if !slices.Contains(reached, entry.typ) {
			t.Errorf("%s: is in supportTable and not reached from PodSpec", entry.typ)
		}
		for name := range entry.notes {
			if !supportByType()[entry.typ].supported[name] {
				t.Errorf("%s.%s: has a note and is not supported", entry.typ, name)
			}
		}
	}
}

// A pod that uses just one field, made by reflection, is refused, warned of or
// accepted as the table says, at the right place.
func TestClassificationIsWhatHappens(t *testing.T) {
	to, types := edges()
	for _, typ := range types {
		ways := to[typ]
		if typ == types[0] {
			ways = []edge{{}}
		}
		s := supportByType()[typ.Name()]
		for _, way := range ways {
			for _, name := range fieldsOf(typ).names {
				if s.supported[name] {
					pod, path := podUsing(to, typ, way, name, func(in, v reflect.Value) {
						fill(v, 0)
						for _, r := range s.rules[name] {
							if u := r.unless; u != nil {
								setPlain(in.FieldByIndex(fieldsOf(typ).index[u.field]), u.value)
							}
						}
					})
					expectSupport(t, pod, path, Supported)
				}
				for _, r := range s.rules[name] {
					pod, path := podUsing(to, typ, way, name, func(_, v reflect.Value) { fillFor(v, r) })
					if r.matches != nil {
						path += "[" + r.key + "]"
					}
					expectSupport(t, pod, path, r.support)
					for _, n := range r.neutral {
						pod, path := podUsing(to, typ, way, name, func(_, v reflect.Value) { setPlain(v, n) })
						expectSupport(t, pod, path, Supported)
					}
				}
			}
		}
	}
}

// podUsing makes a pod in which the field of a type has a value, and nothing
// else does but what leads there.
func podUsing(to map[reflect.Type][]edge, typ reflect.Type, last edge, name string, set func(in, v reflect.Value)) (*corev1.Pod, string) {
	chain := []edge{{typ, name}}
	if last.from != nil {
		chain = append(chain, last)
		for at := last.from; len(to[at]) > 0; at = to[at][0].from {
			chain = append(chain, to[at][0])
		}
	}
	slices.Reverse(chain)
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	v, path := reflect.ValueOf(&pod.Spec).Elem(), "spec"
	for i, e := range chain {
		in := v
		v = v.FieldByIndex(fieldsOf(e.from).index[e.field])
		path += "." + e.field
		if i == len(chain)-1 {
			set(in, v)
			break
		}
		for v.Kind() != reflect.Struct {
			if v.Kind() == reflect.Slice {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
				v = v.Index(0)
				path += "[0]"
			} else {
				v.Set(reflect.New(v.Type().Elem()))
				v = v.Elem()
			}
		}
	}
	return pod, path
}

// fill gives v a value that counts as used. With depth 0 structs stay empty.
func fill(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse("1")
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(80)
		return
	case *metav1.Time:
		*x = metav1.NewTime(time.Unix(1, 0))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(elem, depth)
		v.SetMapIndex(reflect.ValueOf("cpu").Convert(v.Type().Key()), elem)
	case reflect.Struct:
		for i := range v.NumField() {
			if depth > 0 && v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth-1)
			}
		}
	}
}

// fillFor gives v a value that the rule is about.
func fillFor(v reflect.Value, r rule) {
	switch {
	case r.value != "":
		setPlain(v, r.value)
	case r.key != "":
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(r.key).Convert(v.Type().Key()), reflect.ValueOf(resource.MustParse("1")))
	default:
		fill(v, 2)
	}
}

func setPlain(v reflect.Value, plain any) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	v.Set(reflect.ValueOf(plain).Convert(v.Type()))
}

// expectSupport decodes the pod's manifest and looks for what the table brings
// up at path.
func expectSupport(t *testing.T, pod *corev1.Pod, path string, want Support) {
	t.Helper()
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	_, problems := Decode("pod.yaml", text)
	var found Problems
	for _, p := range problems {
		if p.Rule == RuleRejected || p.Rule == RuleNoEffect {
			found = append(found, p)
		}
	}
	if want == Supported {
		if len(found) > 0 {
			t.Errorf("%s is supported, but: %v", path, found)
		}
		return
	}
	i := slices.IndexFunc(found, func(p Problem) bool { return p.Field == path })
	if i < 0 {
		t.Errorf("%s is to be %s, found only: %v\n%s", path, want, problems, text)
		return
	}
	p := found[i]
	if (p.Severity == Error) != (want == Rejected) || (p.Rule == RuleRejected) != (want == Rejected) {
		t.Errorf("%s is to be %s, but: %v", path, want, p)
	}
	last := strings.TrimSuffix(path[strings.LastIndexAny(path, ".[")+1:], "]")
	if strings.HasSuffix(path, "[example.com/device]") {
		last = "example.com/device"
	}
	if line := strings.Split(string(text), "\n")[p.Line-1]; !strings.Contains(line, last+":") {
		t.Errorf("%s: line %d is %q", path, p.Line, line)
	}
	if p.Message == "" {
		t.Errorf("%s: no message", path)
	}
}

const docMark = "<!-- From here on written by `go test ./internal/manifest -update`. -->\n"

func TestPodSpecDocIsCurrent(t *testing.T) {
	const path = "../../docs/pod-spec.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(text), docMark)
	if !ok {
		t.Fatalf("%s has no line %q", path, docMark)
	}
	golden(t, path, head+docMark+supportDoc())
}

// supportDoc writes supportTable as Markdown.
func supportDoc() string {
	to, types := edges()
	var b strings.Builder
	counts := map[Support]int{}
	for _, typ := range types {
		s := supportByType()[typ.Name()]
		fmt.Fprintf(&b, "\n## %s\n\n", typ.Name())
		var used []string
		for _, e := range to[typ] {
			used = append(used, fmt.Sprintf("`%s` of [%s](#%s)", e.field, e.from.Name(), strings.ToLower(e.from.Name())))
		}
		if len(used) > 0 {
			fmt.Fprintf(&b, "In %s.\n\n", strings.Join(used, ", "))
		}
		var plain, order []string
		rows := map[string][]string{} // fields with the same fate and note share a row
		for _, name := range fieldsOf(typ).names {
			fate, note := docOf(typ.Name(), name, s)
			counts[fate]++
			if fate == Supported && note == "" {
				plain = append(plain, "`"+name+"`")
				continue
			}
			row := fmt.Sprintf("%s | %s", fate, note)
			if rows[row] == nil {
				order = append(order, row)
			}
			rows[row] = append(rows[row], "`"+name+"`")
		}
		if len(plain) > 0 {
			fmt.Fprintf(&b, "Supported: %s.\n", strings.Join(plain, ", "))
		}
		if len(order) > 0 {
			b.WriteString("\n| field | | |\n|---|---|---|\n")
		}
		for _, row := range order {
			fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(rows[row], ", "), row)
		}
	}
	total := fmt.Sprintf("\n%d fields are supported, %d rejected, %d have no effect; what is below a rejected field or one without effect goes with it.\n",
		counts[Supported], counts[Rejected], counts[NoEffect])
	return total + b.String()
}

func docOf(typ, name string, s typeSupport) (Support, string) {
	fate := Supported
	var notes []string
	i := slices.IndexFunc(supportTable, func(t typeRules) bool { return t.typ == typ })
	if n := supportTable[i].notes[name]; n != "" {
		notes = append(notes, n)
	}
	for _, r := range s.rules[name] {
		reason := strings.TrimPrefix(strings.TrimPrefix(r.message, "is not supported: "), "has no effect: ")
		if r.hint != "" {
			reason += "; " + r.hint
		}
		switch {
		case r.value != "":
			notes = append(notes, fmt.Sprintf("`%s` is %s: %s", r.value, r.support, reason))
		case r.unless != nil:
			notes = append(notes, fmt.Sprintf("%s unless `%s` is `%s`: %s", r.support, r.unless.field, r.unless.value, reason))
		case r.matches != nil:
			what := "`" + r.key + "`"
			if r.key == "example.com/device" {
				what = "any other"
			}
			notes = append(notes, fmt.Sprintf("%s: %s, %s", what, r.support, reason))
		default:
			fate = r.support
			if len(r.neutral) > 0 {
				text, _ := json.Marshal(r.neutral[0])
				reason += fmt.Sprintf("; no warning for `%s`", strings.Trim(string(text), `"`))
			}
			notes = append(notes, reason)
		}
	}
	return fate, strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(notes, ". "))
}

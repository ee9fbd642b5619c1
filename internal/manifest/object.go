package manifest

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Set is what some manifests declare, with defaults applied. Objects that have
// errors are not in it.
type Set struct {
	Pods       []*corev1.Pod
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret

	origins map[metav1.Object]Origin
}

// Origin says where an object was read.
type Origin struct {
	File string // as the user named it; "<stdin>" for -
	Line int    // of its first line
	Path string // within a List: items[2]; else empty

	root *node // where paths of the object start
}

// Origin says where an object of the set was read; obj must be the very pointer.
func (s *Set) Origin(obj metav1.Object) (Origin, bool) {
	o, ok := s.origins[obj]
	return o, ok
}

func (s *Set) add(o object) {
	if s.origins == nil {
		s.origins = map[metav1.Object]Origin{}
	}
	s.origins[o.meta] = o.origin
	switch obj := o.meta.(type) {
	case *corev1.Pod:
		s.Pods = append(s.Pods, obj)
	case *corev1.ConfigMap:
		s.ConfigMaps = append(s.ConfigMaps, obj)
	case *corev1.Secret:
		s.Secrets = append(s.Secrets, obj)
	}
}

// reporter takes the problems of one file; it fills in the file's name.
type reporter func(Problem)

// object is one declared object, usable or not.
type object struct {
	meta   metav1.Object
	kind   string
	origin Origin
	bad    bool // it has errors
}

// file is what one file, or standard input, declares.
type file struct {
	name     string
	classes  []string // runtime classes that pods may have
	objects  []object
	problems Problems // at most maxProblems
	more     int      // problems that were left out
}

// empty says that there is nothing in the file that could be run, and nothing that
// says why. An empty List is nothing, as it is to kubectl.
func (f *file) empty() bool { return len(f.objects) == 0 && len(f.problems.Errors()) == 0 }

// full reports whether further problems are only counted.
func (f *file) full() bool { return len(f.problems) >= maxProblems }

func (f *file) report(p Problem) {
	if f.full() {
		f.more++
		return
	}
	p.File = f.name
	f.problems = append(f.problems, p)
}

// Decode reads the manifests in data: YAML or JSON, any number of documents.
// name is for messages, its suffix .json decides which syntax errors are meant.
// The set holds the objects without errors.
func Decode(name string, data []byte) (Set, Problems) {
	f := decodeFile(name, data, nil)
	if f.empty() {
		f.report(Problem{Rule: RuleKind, Message: "holds no object", Hint: "write a Pod, ConfigMap or Secret"})
	}
	return join([]*file{f})
}

// decodeFile reads one file. It reports nothing about a file without objects.
// classes are the runtime classes that pods may have.
func decodeFile(name string, data []byte, classes []string) *file {
	f := &file{name: name, classes: classes}
	data, bad := checkText(data)
	if bad != nil {
		f.report(*bad)
		return f
	}
	if looksLikeJSON(data) && f.json(data) {
		return f
	}
	docs := splitYAML(data)
	if len(docs) > maxDocuments {
		f.report(Problem{Line: docs[maxDocuments].firstLine + 1, Rule: RuleText, Message: fmt.Sprintf("the file has more than %d documents", maxDocuments), Hint: "split it"})
		return f
	}
	for _, doc := range docs {
		if f.tooLarge(doc.firstLine+1, len(doc.data)) {
			continue
		}
		var problems Problems
		root, ok := parseYAML(doc, func(p Problem) { problems = append(problems, p) })
		if !ok {
			if p := notJSON(doc); p != nil {
				problems = Problems{*p}
			}
		}
		for _, p := range problems {
			f.report(p)
		}
		if ok {
			f.document(root)
		}
	}
	return f
}

// json reads data as JSON values that follow each other. It reports false, and
// nothing else, when the file is more likely YAML in flow style.
func (f *file) json(data []byte) bool {
	g := newJSONGrower(document{data: data})
	var roots []*node
	for {
		root, size, err := g.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if filepath.Ext(f.name) != ".json" && !errors.Is(err, errTooDeep) {
				return false
			}
			f.report(g.problem(err))
			break
		}
		if len(roots) == maxDocuments {
			f.report(Problem{Line: root.line, Rule: RuleText, Message: fmt.Sprintf("the file has more than %d values", maxDocuments), Hint: "split it"})
			return true
		}
		if !f.tooLarge(root.line, size) {
			roots = append(roots, root)
		}
	}
	for _, root := range roots {
		f.document(root)
	}
	return true
}

func (f *file) tooLarge(line, size int) bool {
	if size <= MaxDocumentBytes {
		return false
	}
	f.report(Problem{Line: line, Rule: RuleText, Message: "the document is larger than " + megabytes(MaxDocumentBytes), Hint: "split it with --- lines"})
	return true
}

// document reads one document, or one value of a List.
func (f *file) document(root *node) {
	if root.kind == nullNode {
		return
	}
	f.value(root, "", "")
}

// value reads the object at prefix. implied is the kind it has when it doesn't
// say, as in a PodList.
func (f *file) value(n *node, prefix, implied string) {
	if n.fault != nil && n.kind != mapNode {
		f.fault(n, n.line, prefix)
		return
	}
	if n.kind != mapNode {
		p := Problem{Line: n.line, Field: prefix, Rule: RuleKind,
			Message: "is " + n.noun() + ", want an object", Hint: "it starts with apiVersion: v1 and kind: Pod"}
		if prefix == "" {
			p.Message = "the document " + p.Message
		}
		f.report(p)
		return
	}
	kind := kindOf(n, prefix, implied, f.report)
	if kind == "" {
		return
	}
	if items, ok := lists[kind]; ok {
		f.fault(n, n.line, prefix)
		f.list(n, prefix, kind, items)
		return
	}
	f.object(n, prefix, kind)
}

// fault reports what is wrong with a value as such, if anything is.
func (f *file) fault(n *node, line int, at string) {
	if n.fault != nil {
		f.report(Problem{Line: line, Field: at, Rule: n.fault.rule, Message: n.fault.message, Hint: n.fault.hint})
	}
}

// list reads the items of a List.
func (f *file) list(n *node, prefix, kind, implied string) {
	if prefix != "" {
		f.report(Problem{Line: n.line, Field: prefix, Rule: RuleKind, Message: "is a " + kind + " inside a List", Hint: "put its items into the outer one"})
		return
	}
	for _, e := range n.fields {
		switch e.key {
		case "apiVersion", "kind", "metadata", "items":
		default:
			f.report(Problem{Line: e.line, Field: e.key, Rule: RuleUnknown, Message: "there is no such field in a " + kind, Hint: "its objects go below items"})
		}
	}
	items := n.field("items")
	if items != nil {
		f.fault(items.value, items.line, "items")
	}
	switch {
	case items != nil && items.value.kind == badNode: // that was told
	case items == nil || items.value.kind == nullNode || items.value.kind == listNode && len(items.value.items) == 0:
		line := n.line
		if items != nil {
			line = items.line
		}
		f.report(Problem{Line: line, Field: "items", Rule: RuleKind, Severity: Warning, Message: "the " + kind + " is empty"})
	case items.value.kind != listNode:
		f.report(Problem{Line: items.line, Field: "items", Rule: RuleType, Message: "is " + items.value.noun() + ", want a list", Hint: `start each item with "- "`})
	default:
		for i, item := range items.value.items {
			if f.full() {
				f.more += len(items.value.items) - i
				break
			}
			f.value(item, fmt.Sprintf("items[%d]", i), implied)
		}
	}
}

// unread are fields that only a cluster writes and nothing here looks at.
var unread = map[string]bool{"status": true, "metadata.managedFields": true}

// object decodes, defaults and checks one object.
func (f *file) object(n *node, prefix, kind string) {
	o := object{kind: kind, origin: Origin{File: f.name, Line: n.line, Path: prefix, root: n}}
	c := &checker{root: n, prefix: prefix, out: f.report, full: f.full, classes: f.classes}
	d := &decoder{report: c.decodeProblem, full: f.full, skip: unread, secret: kind == kindSecret, moved: func(path string) {
		c.moved = append(c.moved, path)
	}}
	switch kind {
	case kindPod:
		pod := &corev1.Pod{}
		if d.object(n, pod) {
			c.pod(pod)
		}
		o.meta = pod
	case kindConfigMap:
		configMap := &corev1.ConfigMap{}
		if d.object(n, configMap) {
			c.configMap(configMap)
		}
		o.meta = configMap
	case kindSecret:
		secret := &corev1.Secret{}
		if d.object(n, secret) {
			c.secret(secret)
		}
		o.meta = secret
	}
	o.bad = c.errors > 0
	f.objects = append(f.objects, o)
}

// join makes one set of all files, and finds objects that are declared twice.
func join(files []*file) (Set, Problems) {
	var set Set
	first := map[string]object{}
	for _, f := range files {
		for _, o := range f.objects {
			if twin := twin(first, o); twin != nil {
				f.report(*twin)
				continue
			}
			if !o.bad {
				set.add(o)
			}
		}
	}
	var problems Problems
	for _, f := range files {
		problems = append(problems, f.problems.sorted()...)
		if f.more > 0 {
			problems = append(problems, Problem{File: f.name, Rule: RuleInvalid, Message: fmt.Sprintf("%d more problems are not shown", f.more)})
		}
	}
	return set, problems
}

// twin words the problem of an object that has the name or the uid of an
// earlier one.
func twin(first map[string]object, o object) *Problem {
	if o.meta.GetName() == "" {
		return nil
	}
	name := o.meta.GetNamespace() + "/" + o.meta.GetName()
	keys := []struct{ key, path, what, hint string }{
		{o.kind + " " + name, "metadata.name", fmt.Sprintf("the %s %s", o.kind, name), "rename one of the two or remove it"},
		{"uid " + string(o.meta.GetUID()), "metadata.uid", "an object with this uid", "remove the uid from both"},
	}
	for _, k := range keys {
		if k.path == "metadata.uid" && o.meta.GetUID() == "" {
			continue
		}
		other, ok := first[k.key]
		if !ok {
			first[k.key] = o
			continue
		}
		place := fmt.Sprintf("%s:%d", other.origin.File, locate(other.origin.root, k.path))
		return &Problem{
			Line: locate(o.origin.root, k.path), Field: joined(o.origin.Path, k.path), Rule: RuleDuplicate,
			Message: k.what + " is already declared at " + place, Hint: k.hint,
		}
	}
	return nil
}

// joined puts the place of a List's item before a path.
func joined(prefix, path string) string {
	if prefix == "" || path == "" {
		return prefix + path
	}
	return prefix + "." + path
}

// decodeProblem is the decoder's way to report.
func (c *checker) decodeProblem(line int, path *field.Path, rule Rule, message, hint string) {
	if !c.full() {
		c.decoded = append(c.decoded, pathText(path))
	}
	c.report(Problem{Line: line, Field: pathText(path), Rule: rule, Message: message, Hint: hint})
}

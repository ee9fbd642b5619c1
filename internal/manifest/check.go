package manifest

import (
	"context"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"

	"github.com/berth-run/berth/internal/probetiming"
)

// checker checks one decoded object and fills in its defaults.
type checker struct {
	root   *node       // of the object
	prefix string      // of its paths within the document: items[2]
	out    reporter    // of the file
	full   func() bool // further problems are only counted

	classes []string // that a pod may have as its runtime class

	decoded  []string // paths that the decoder reported
	moved    []string // where misplaced fields belong; lists without index
	rejected []string // paths of unsupported fields
	errors   int
}

// report passes a problem on; its Field is relative to the object, and Line 0
// means that of the field.
func (c *checker) report(p Problem) {
	if p.Line == 0 {
		p.Line = locate(c.root, p.Field)
	}
	p.Field = joined(c.prefix, p.Field)
	if p.Severity == Error {
		c.errors++
	}
	c.out(p)
}

// pod checks p and gives it its defaults.
func (c *checker) pod(p *corev1.Pod) {
	c.metadata(p)
	c.status()
	for _, f := range unsupported(p) {
		if f.Field == "spec.runtimeClassName" && slices.Contains(c.classes, *p.Spec.RuntimeClassName) {
			continue
		}
		if f.Severity == Error {
			c.rejected = append(c.rejected, f.Field)
		}
		c.report(f)
	}
	for _, t := range probetiming.Check(p) {
		c.report(Problem{Field: "metadata.annotations[" + t.Key + "]", Rule: RuleInvalid, Message: t.Message, Hint: t.Hint})
	}
	c.capabilities(&p.Spec)
	c.modes()
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		c.report(Problem{Field: "spec.terminationGracePeriodSeconds", Rule: RuleAdvice, Severity: Warning,
			Message: "is below 0, which Kubernetes takes as 1"})
	}
	apiv1.SetObjectDefaults_Pod(p)
	var internal core.Pod
	if err := apiv1.Convert_v1_Pod_To_core_Pod(p, &internal, nil); err != nil {
		c.report(Problem{Rule: RuleInvalid, Message: err.Error()})
		return
	}
	pod.DefaultPodLevelResources(&internal)
	options := pod.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	options.ResourceIsPod = true
	allowPrivileged()
	c.invalid(validation.ValidatePodCreate(&internal, options))
	if c.errors > 0 {
		return
	}
	if strings.Contains(p.Name, ".") && p.Spec.Hostname == "" && p.Spec.HostnameOverride == nil {
		c.report(Problem{Field: "metadata.name", Rule: RuleAdvice, Severity: Warning,
			Message: quoted(p.Name) + " is also the pod's hostname, where dots are unusual", Hint: "set spec.hostname"})
	}
	for _, w := range pod.GetWarningsForPod(context.Background(), &internal, nil) {
		c.upstreamWarning(w)
	}
	status := p.Status
	if err := apiv1.Convert_core_Pod_To_v1_Pod(&internal, p, nil); err != nil {
		c.report(Problem{Rule: RuleInvalid, Message: err.Error()})
	}
	p.Status = status
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: kindPod}
}

// allowPrivileged tells upstream's validation, once, that privileged containers
// may run; the API server has a flag for it.
var allowPrivileged = sync.OnceFunc(func() { capabilities.Setup(true, 0) })

// modes warns of file modes that are surely meant to be octal and are not: 400
// is 0620. Those above 511 are errors anyway.
func (c *checker) modes() {
	volumes := find(c.root, "spec.volumes")
	if volumes == nil {
		return
	}
	var walk func(n *node, path string)
	walk = func(n *node, path string) {
		for i, item := range n.items {
			walk(item, fmt.Sprintf("%s[%d]", path, i))
		}
		for _, f := range n.fields {
			at := path + "." + f.key
			if (f.key == "mode" || f.key == "defaultMode") && slices.Contains([]string{"400", "440", "444", "500"}, f.value.text) {
				c.report(Problem{Line: f.line, Field: at, Rule: RuleAdvice, Severity: Warning,
					Message: fmt.Sprintf("%s is decimal, so the mode is %04o", f.value.text, f.value.whole), Hint: "write 0" + f.value.text + " if that was meant"})
			}
			walk(f.value, at)
		}
	}
	walk(volumes, "spec.volumes")
}

func (c *checker) configMap(m *corev1.ConfigMap) {
	c.metadata(m)
	apiv1.SetObjectDefaults_ConfigMap(m)
	var internal core.ConfigMap
	if err := apiv1.Convert_v1_ConfigMap_To_core_ConfigMap(m, &internal, nil); err != nil {
		c.report(Problem{Rule: RuleInvalid, Message: err.Error()})
		return
	}
	c.invalid(validation.ValidateConfigMap(&internal))
	m.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: kindConfigMap}
}

// secret also moves stringData into data, as the API server does.
func (c *checker) secret(s *corev1.Secret) {
	c.metadata(s)
	apiv1.SetObjectDefaults_Secret(s)
	for key, text := range s.StringData {
		if s.Data == nil {
			s.Data = make(map[string][]byte, len(s.StringData))
		}
		s.Data[key] = []byte(text)
	}
	s.StringData = nil
	var internal core.Secret
	if err := apiv1.Convert_v1_Secret_To_core_Secret(s, &internal, nil); err != nil {
		c.report(Problem{Rule: RuleInvalid, Message: err.Error()})
		return
	}
	c.invalid(validation.ValidateSecret(&internal))
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: kindSecret}
}

// metadata applies what holds for the metadata of any object from a file: the
// default namespace, a name made from generateName, and nothing of what an API
// server or a controller keeps there.
func (c *checker) metadata(o metav1.Object) {
	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	if base := o.GetGenerateName(); o.GetName() == "" && base != "" {
		const most = 63 - 5 // as Kubernetes: the whole name is a DNS label
		o.SetName(base[:min(len(base), most)] + suffix(c.root))
	}
	if uid := string(o.GetUID()); uid != "" && !safeUID(uid) {
		c.report(Problem{Field: "metadata.uid", Rule: RuleInvalid, Message: quoted(uid) + " is not a uid: it names folders, so it may hold only a–z, 0–9 and -", Hint: "remove it"})
	}
	dropped := func(name, message string) {
		c.report(Problem{Field: "metadata." + name, Rule: RuleNoEffect, Severity: Warning, Message: message})
	}
	if len(o.GetFinalizers()) > 0 {
		dropped("finalizers", "has no effect: nothing would ever remove them")
	}
	if len(o.GetOwnerReferences()) > 0 {
		dropped("ownerReferences", "has no effect: no owner is looked after here")
	}
	if o.GetDeletionTimestamp() != nil {
		dropped("deletionTimestamp", "is ignored: the object is declared, so it is wanted")
	}
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetCreationTimestamp(metav1.Time{})
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetSelfLink("")
	o.SetManagedFields(nil)
}

// safeUID reports whether a uid can name a folder.
func safeUID(uid string) bool {
	return len(uid) <= 64 && strings.Trim(uid, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && uid[0] != '-'
}

// suffix ends a generated name. It depends only on the manifest: the same
// manifest is the same pod, also after a restart.
func suffix(root *node) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // as Kubernetes: they spell no words
	h := fnv.New32a()
	hashNode(h, root)
	sum := h.Sum32()
	var out [5]byte
	for i := range out {
		out[i] = letters[sum%uint32(len(letters))]
		sum /= uint32(len(letters))
	}
	return string(out[:])
}

// status warns of a status that someone copied from a cluster.
func (c *checker) status() {
	f := c.root.field("status")
	if f == nil || f.value.kind == nullNode || f.value.kind == mapNode && len(f.value.fields) == 0 {
		return
	}
	c.report(Problem{Line: f.line, Field: "status", Rule: RuleNoEffect, Severity: Warning, Message: "is ignored: berth finds out itself", Hint: "remove it"})
}

// invalid reports the errors of upstream's validation, except those that only
// follow from what the decoder reported.
func (c *checker) invalid(errs field.ErrorList) {
	seen := map[string]bool{}
	for _, e := range errs {
		if c.full() {
			c.report(Problem{Line: 1, Rule: RuleInvalid})
			continue
		}
		path := indexed(c.root, ourPath(e.Field))
		if path == "[]" { // upstream's name for all data of a ConfigMap
			if path = "data"; find(c.root, path) == nil {
				path = "binaryData"
			}
		}
		key := string(e.Type) + " " + path
		if c.explained(path) || c.made(path) || e.Type != field.ErrorTypeInvalid && seen[key] {
			continue
		}
		seen[key] = true
		if e.Type == field.ErrorTypeNotFound && volumeRef.MatchString(path) && (c.explained("spec.volumes") || hasVolume(c.root, fmt.Sprint(e.BadValue))) {
			continue // what is wrong with the volumes is told, and this follows from it
		}
		message, hint := words(e, path, c.root)
		if message == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(path, "data["); ok && find(c.root, path) == nil && find(c.root, "stringData["+rest) != nil {
			path = "stringData[" + rest
		}
		line := locate(c.root, path)
		if e.Type == field.ErrorTypeInvalid {
			line = locateValue(c.root, path, e.BadValue)
		}
		c.report(Problem{Line: line, Field: path, Rule: RuleInvalid, Message: message, Hint: hint})
	}
}

// explained reports whether the decoder found something at the field, around
// it, or beside it that makes a further error there noise.
func (c *checker) explained(path string) bool {
	if slices.ContainsFunc(c.rejected, func(r string) bool { return within(path, r) }) {
		return true
	}
	plain := listIndex.ReplaceAllString(path, "[]")
	if slices.ContainsFunc(c.moved, func(m string) bool { return within(plain, m) }) {
		return true
	}
	for _, d := range c.decoded {
		if d != "" && (within(path, d) || parentOf(path) == parentOf(d) && find(c.root, path) == nil) {
			return true
		}
	}
	return false
}

// made reports whether a field has a value that was made from another one's, which
// has the same problem: a request from its limit, a name from generateName.
func (c *checker) made(path string) bool {
	if find(c.root, path) != nil {
		return false
	}
	limit := strings.Replace(path, ".resources.requests[", ".resources.limits[", 1)
	return limit != path && find(c.root, limit) != nil || path == "metadata.name" && c.root.field("metadata") != nil && find(c.root, "metadata.generateName") != nil
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// parentOf is path without its last element.
func parentOf(path string) string {
	i := strings.LastIndexAny(path, ".[")
	return path[:max(i, 0)]
}

// upstreamWarning passes on a warning of upstream's, which come as
// "path: text".
func (c *checker) upstreamWarning(text string) {
	path, message, ok := strings.Cut(text, ": ")
	if !ok || strings.Contains(path, " ") {
		path, message = "", text
	}
	if c.made(path) {
		return
	}
	message, _, _ = strings.Cut(message, ", which may be dropped when using apply")
	p := Problem{Field: path, Rule: RuleAdvice, Severity: Warning, Message: shorter(message)}
	if n := find(c.root, path); n != nil && strings.HasPrefix(message, "fractional byte value") {
		number := strings.TrimSuffix(n.text, "m")
		p.Message, p.Hint = n.text+" is less than whole bytes: m is a thousandth", "write "+number+"M or "+number+"Mi"
	}
	c.report(p)
}

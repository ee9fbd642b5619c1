package manifest

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ourPath is a path of upstream's validation as the manifest writes it: a few
// fields have another name in upstream's internal types.
func ourPath(path string) string {
	if path == "<nil>" {
		return ""
	}
	for _, r := range []struct{ theirs, ours string }{
		{"spec.deprecatedServiceAccount", "spec.serviceAccount"},
		{"spec.securityContext.hostNetwork", "spec.hostNetwork"},
		{"spec.securityContext.hostPID", "spec.hostPID"},
		{"spec.securityContext.hostIPC", "spec.hostIPC"},
		{"spec.securityContext.hostUsers", "spec.hostUsers"},
		{"spec.securityContext.shareProcessNamespace", "spec.shareProcessNamespace"},
	} {
		if within(path, r.theirs) {
			return r.ours + path[len(r.theirs):]
		}
	}
	return path
}

var (
	portPath  = regexp.MustCompile(`(?i)port$`)
	volumeRef = regexp.MustCompile(`\.(volumeMounts\[\d+\]\.name|volumeDevices\[\d+\]\.name|fileKeyRef\.volumeName)$`)
	between   = regexp.MustCompile(`^must be between (-?\d+) and (-?\d+), inclusive$`)
	// examples are upstream's "(e.g. 'a',  or 'b', regex used for validation
	// is '…')", which fills a terminal and helps nobody.
	examples = regexp.MustCompile(` ?\(e\.g\. (.*?),? ?regex used for validation is '.*?'\)`)
	eg       = regexp.MustCompile(`,? ?\(e\.g\. ([^()]*)\)`)
	bare     = regexp.MustCompile(` ?\(regex used for validation is '.*?'\)`)
	allowed  = regexp.MustCompile(`^supported values: (.*)$`)
	item     = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
)

// words puts an error of upstream's validation into a message and a hint.
func words(e *field.Error, path string, root *node) (message, hint string) {
	value := shown(e.BadValue)
	detail := shorter(e.Detail)
	switch e.Type {
	case field.ErrorTypeRequired:
		return required(path, detail)
	case field.ErrorTypeNotFound:
		if volumeRef.MatchString(path) {
			return "no volume is named " + value, volumesOf(root)
		}
		return value + " is not defined in this pod", detail
	case field.ErrorTypeDuplicate:
		if detail != "" {
			return value + " is there twice: " + detail, "remove or change one of the two"
		}
		return value + " is there twice", "remove or change one of the two"
	case field.ErrorTypeNotSupported:
		return notSupported(e.BadValue, value, e.Detail)
	case field.ErrorTypeForbidden:
		if detail == "" {
			return "is not allowed here", ""
		}
		if strings.HasPrefix(path, "spec.") && strings.HasSuffix(path, ".stopSignal") {
			return "is not allowed while spec.os.name is not set", "write os: {name: linux} below spec"
		}
		return refusal("is not allowed", detail), ""
	case field.ErrorTypeInvalid, field.ErrorTypeTypeInvalid:
		return invalid(path, value, detail)
	case field.ErrorTypeTooLong:
		return "is too long: " + detail, ""
	case field.ErrorTypeTooMany:
		return "has too many items: " + detail, ""
	default:
		return shorter(e.ErrorBody()), ""
	}
}

func required(path, detail string) (message, hint string) {
	switch {
	case path == "metadata.name":
		return "is missing", "write metadata: name: …"
	case path == "spec.containers":
		return "is missing", "a pod needs at least one container"
	case strings.HasSuffix(path, ".image"):
		return "is missing", "name an image, for example docker.io/library/busybox:1.36"
	case detail == "":
		return "is missing", ""
	}
	return "is missing: " + detail, ""
}

func invalid(path, value, detail string) (message, hint string) {
	if m := between.FindStringSubmatch(detail); m != nil {
		if portPath.MatchString(path) {
			return value + " is not a port", "use " + m[1] + "–" + m[2]
		}
		return value + " is out of range", "use " + m[1] + "–" + m[2]
	}
	if rest, ok := strings.CutPrefix(detail, "must be greater than or equal to "); ok {
		return value + " is too small", "use " + rest + " or more"
	}
	for _, n := range nameRules {
		if strings.HasPrefix(detail, n.theirs) && value != "" {
			return value + " is not a valid " + n.noun, n.ours
		}
	}
	switch {
	case strings.Contains(detail, "field label not supported"):
		return value + " is no field that a container can be given", "use metadata.name, namespace, uid, labels['…'] or annotations['…'], spec.nodeName, status.podIP, status.podIPs, status.hostIP or status.hostIPs"
	case strings.HasPrefix(detail, "must be a number between 0 and 0777 (octal)"):
		return value + " is no file mode; it is read as decimal", "write it with a leading 0, as 0" + value
	case value == "" || value == `""` || strings.HasPrefix(value, `"<secret`):
		return refusal("is not valid", detail), ""
	}
	return value + " is not valid: " + detail, ""
}

// refusal leaves the verdict out when the detail is one.
func refusal(verdict, detail string) string {
	for _, start := range []string{"may not", "must", "cannot", "can not", "only"} {
		if strings.HasPrefix(detail, start) {
			return detail
		}
	}
	return verdict + ": " + detail
}

// nameRules say in short what upstream says in three lines.
var nameRules = []struct{ theirs, noun, ours string }{
	{"a lowercase RFC 1123 label must", "name", "use a–z, 0–9 and -, and start and end with a letter or digit"},
	{"a lowercase RFC 1123 subdomain must", "name", "use a–z, 0–9, - and ., and start and end with a letter or digit"},
	{"a valid label must be an empty string or", "label value", "use letters, digits, -, _ and ., and start and end with a letter or digit"},
	{"name part must consist of", "key", "use letters, digits, -, _ and ., and start and end with a letter or digit"},
	{"a valid config key must", "key", "use letters, digits, -, _ and ."},
}

func notSupported(bad any, value, detail string) (message, hint string) {
	m := allowed.FindStringSubmatch(detail)
	if m == nil {
		return value + " is not allowed", shorter(detail)
	}
	var names []string
	for _, n := range item.FindAllStringSubmatch(m[1], -1) {
		if n[1] != "" {
			names = append(names, n[1])
		}
	}
	if near, _ := nearest(fmt.Sprint(deref(bad)), names); near != "" {
		return value + " is not allowed", "did you mean " + near + "? Allowed: " + strings.Join(names, ", ")
	}
	return value + " is not allowed", "use " + strings.Join(names, ", ")
}

// hasVolume says that the document has a volume of that name, be it an invalid one.
func hasVolume(root *node, name string) bool {
	volumes := find(root, "spec.volumes")
	return volumes != nil && slices.ContainsFunc(volumes.items, func(v *node) bool {
		f := v.field("name")
		return f != nil && f.value.text == name
	})
}

// volumesOf lists the names of the pod's volumes.
func volumesOf(root *node) string {
	volumes := find(root, "spec.volumes")
	if volumes == nil || len(volumes.items) == 0 {
		return "add it to spec.volumes"
	}
	var names []string
	for _, v := range volumes.items {
		if name := v.textOf("name"); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return "spec.volumes has " + strings.Join(names, ", ")
}

// shorter takes the regular expressions out of a text of upstream's, and the
// words that assume a cluster.
func shorter(text string) string {
	text = examples.ReplaceAllStringFunc(text, func(s string) string {
		m := examples.FindStringSubmatch(s)
		list := strings.ReplaceAll(strings.ReplaceAll(m[1], ",  or", " or"), ", or", " or")
		return ", for example " + strings.Trim(list, " ,")
	})
	text = eg.ReplaceAllString(text, ", for example $1")
	return strings.TrimSpace(bare.ReplaceAllString(text, ""))
}

// shown gives a bad value for a message; structs and lists are left out, their
// path says enough.
func shown(v any) string {
	v = deref(v)
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.String:
		return quoted(rv.String())
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return fmt.Sprint(v)
	}
	if s, ok := v.(fmt.Stringer); ok {
		return quoted(s.String())
	}
	return ""
}

func deref(v any) any {
	for rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && !rv.IsNil(); rv = rv.Elem() {
		if _, ok := v.(fmt.Stringer); ok {
			return v
		}
		v = rv.Elem().Interface()
	}
	return v
}

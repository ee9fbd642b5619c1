package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (d *decoder) bytes(n *node, v reflect.Value, path *field.Path) {
	if n.kind != stringNode {
		d.mismatch(n, path, "base64 text", "use stringData for plain text, and put it in quotes")
		return
	}
	data, err := base64.StdEncoding.DecodeString(n.text)
	if err != nil {
		hint := "encode it with base64 -w0"
		if d.secret {
			hint = "encode it with base64 -w0, or move it to stringData as it is"
		}
		if n.binary {
			hint = "remove the tag !!binary: what follows it is base64 already"
		}
		// The value stays out of the message: it may be a secret.
		d.report(n.line, path, RuleType, "is not base64", hint)
		return
	}
	v.SetBytes(data)
}

func (d *decoder) text(n *node, v reflect.Value, path *field.Path) {
	switch n.kind {
	case stringNode:
		v.SetString(n.text)
	case boolNode, intNode, floatNode:
		hint := "put it in quotes"
		if !d.secret {
			hint += fmt.Sprintf(": %q", n.text)
		}
		d.mismatch(n, path, "a string", hint)
	case listNode:
		hint := ""
		if len(n.items) == 1 {
			hint = "write the one value, without the list"
		}
		d.mismatch(n, path, "a string", hint)
	default:
		d.mismatch(n, path, "a string", "")
	}
}

func (d *decoder) boolean(n *node, v reflect.Value, path *field.Path) {
	if n.kind == boolNode {
		v.SetBool(n.truth)
		return
	}
	hint := "write true or false"
	if n.kind == stringNode && (n.text == "true" || n.text == "false") {
		hint = "remove the quotes"
	}
	d.mismatch(n, path, "true or false", hint)
}

func (d *decoder) integer(n *node, v reflect.Value, path *field.Path) {
	whole, ok := n.whole, n.kind == intNode
	if n.kind == floatNode && n.float == math.Trunc(n.float) && math.Abs(n.float) < 1<<53 {
		whole, ok = int64(n.float), true
	}
	switch {
	case ok && !v.OverflowInt(whole):
		v.SetInt(whole)
	case ok, n.kind == floatNode && math.Abs(n.float) >= 1<<53:
		most := int64(math.MaxInt64)
		if v.Kind() == reflect.Int32 {
			most = math.MaxInt32
		}
		d.report(n.line, path, RuleType, fmt.Sprintf("%s does not fit, the largest number here is %d", n.text, most), "")
	default:
		d.mismatch(n, path, "a whole number", wholeHint(n))
	}
}

// wholeHint helps with "80" and with 30s.
func wholeHint(n *node) string {
	if n.kind != stringNode {
		return ""
	}
	if _, err := strconv.ParseInt(n.text, 10, 64); err == nil {
		return "remove the quotes"
	}
	if seconds, ok := strings.CutSuffix(n.text, "s"); ok {
		if _, err := strconv.ParseInt(seconds, 10, 64); err == nil {
			return "write the number alone: " + seconds
		}
	}
	return ""
}

// special decodes the types that read their own JSON: quantities, ports that
// are a number or a name, times.
func (d *decoder) special(n *node, t reflect.Type, u json.Unmarshaler, path *field.Path) {
	var raw []byte
	switch n.kind {
	case stringNode:
		raw, _ = json.Marshal(n.text)
	case intNode:
		raw = strconv.AppendInt(nil, n.whole, 10)
	case floatNode:
		raw, _ = json.Marshal(n.float)
	default: // none of these types is written so
	}
	var want, hint string
	fits := raw != nil
	switch t.Name() {
	case "Quantity":
		want, hint = "a quantity", "for example 500m, 2, 64Mi or 1Gi"
	case "IntOrString":
		want, hint = "a number or a name", "for example 8080 or http"
		fits = n.kind == intNode || n.kind == stringNode
	case "Time", "MicroTime":
		want, hint = "a time", "for example 2026-01-31T15:04:05Z"
		fits = n.kind == stringNode
	default:
		want = "a " + t.Name()
	}
	if !fits {
		d.mismatch(n, path, want, hint)
		return
	}
	if err := u.UnmarshalJSON(raw); err != nil {
		if t.Name() == "IntOrString" && n.kind == intNode {
			d.report(n.line, path, RuleType, n.text+" is not a port", "use 1–65535")
			return
		}
		if number, ok := strings.CutSuffix(n.text, "B"); ok && t.Name() == "Quantity" {
			if _, err := resource.ParseQuantity(number); err == nil {
				hint = "write " + number + ", without the B"
			}
		}
		d.mismatch(n, path, want, hint)
	}
}

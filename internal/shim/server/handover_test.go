package server

import (
	"reflect"
	"strings"
	"testing"
)

// What does not look like a handover is refused, before any descriptor is touched.
func TestStrangeHandover(t *testing.T) {
	const good = `{"version":1,"lock":3,"socket":4,"fds":5,"containers":{"a":{"stdout":6,"stderr":-1,"stdin":-1,"log":7}}}`
	h, err := decodeHandover([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if k, ok := h.take("a"); !ok || !reflect.DeepEqual(k, kept{Stdout: 6, Stderr: -1, Stdin: -1, Log: 7}) {
		t.Errorf("kept: %+v", k)
	}
	if k, ok := h.take("a"); ok {
		t.Errorf("taken twice: %+v", k)
	}
	for name, change := range map[string][2]string{
		"of a later version":       {`"version":1`, `"version":2`},
		"without a version":        {`"version":1,`, ``},
		"without a lock":           {`"lock":3,`, ``},
		"with a standard stream":   {`"stdout":6`, `"stdout":2`},
		"with a descriptor twice":  {`"log":7`, `"log":4`},
		"cut off":                  {`"log":7}}}`, `"log":7`},
		"with a socket that is -1": {`"socket":4`, `"socket":-1`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Fatalf("%s: nothing changed", name)
		}
		if h, err := decodeHandover([]byte(bad)); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

package cri

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/shim"
)

func TestLastWordsOfAStarterAreToldFromThoseOfACommand(t *testing.T) {
	const crash = "runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort\n"
	early := &shim.StartError{Reason: shim.StartFailed, Message: "unable to start container process: procReady not received"}
	other := &shim.StartError{Reason: shim.CommandNotFound, Message: "no such file"}
	for name, c := range map[string]struct {
		written string
		err     error
		shown   string
		want    error
	}{
		"a command that says something":          {"hello\n", nil, "hello\n", nil},
		"one that says nothing":                  {"", nil, "", nil},
		"one that crashes for want of a thread":  {crash, nil, crash, nil},
		"one that only begins like that":         {"runtime: failed", nil, "runtime: failed", nil},
		"a long crash":                           {crash + strings.Repeat("x", 2*maxLastWords), nil, crash + strings.Repeat("x", 2*maxLastWords), nil},
		"a starter that crashes":                 {crash, early, "", errNoProcess},
		"a starter that is killed":               {"", early, "", errDiedEarly},
		"a command that cannot be started":       {"", other, "", other},
		"a starter's word beside another error":  {"warning\n", other, "warning\n", other},
		"a starter that has something else said": {"warning\n", early, "warning\n", errDiedEarly},
	} {
		var out bytes.Buffer
		l := &lastWords{w: &out}
		for b := []byte(c.written); len(b) > 0; {
			n := min(len(b), 7)
			if k, err := l.Write(b[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			b = b[n:]
		}
		if err := l.end(c.err); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if out.String() != c.shown {
			t.Errorf("%s: %d bytes are shown, want %d", name, out.Len(), len(c.shown))
		}
		if _, err := l.Write([]byte("late")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

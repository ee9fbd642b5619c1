package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// What libraries log is for debugging only, errors included.
func TestLibrariesLogForDebuggingOnly(t *testing.T) {
	for level, want := range map[string]bool{"": false, "info": false, "error": false, "debug": true} {
		var out bytes.Buffer
		if _, err := newLogging(&out, level, "text"); err != nil {
			t.Fatal(err)
		}
		klog.ErrorS(errors.New("the reader left"), "Unhandled Error")
		klog.Flush()
		if got := strings.Contains(out.String(), "the reader left"); got != want {
			t.Errorf("at level %q it logs %q", level, out.String())
		}
	}
}

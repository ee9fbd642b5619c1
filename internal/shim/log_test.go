package shim_test

import (
	"slices"
	"strings"
	"testing"
)

func TestLogHoldsExactlyWhatWasWritten(t *testing.T) {
	n := newNode(t)
	long := strings.Repeat("y", 16<<10)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"lines":             {[]string{"raw", `a\nb\n`}, []string{"stdout F a", "stdout F b"}},
		"empty-lines":       {[]string{"raw", `\n\na\n`}, []string{"stdout F ", "stdout F ", "stdout F a"}},
		"no-newline":        {[]string{"raw", `a`, `b`}, []string{"stdout F ab"}},
		"bytes":             {[]string{"raw", `\x00\xff\r\n`}, []string{"stdout F \x00\xff\r"}},
		"exactly-the-limit": {[]string{"repeat", "y", "16384"}, []string{"stdout F " + long}},
		"one-more":          {[]string{"repeat", "y", "16385"}, []string{"stdout P " + long, "stdout F y"}},
		"three-parts":       {[]string{"repeat", "y", "40000"}, []string{"stdout P " + long, "stdout P " + long, "stdout F " + long[:40000-2*16384]}},
		"nothing":           {[]string{"true"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.bundle(name, nil, tc.args...)
			n.start(r)
			n.wait(name)
			if got := n.entries(r.LogPath); !slices.Equal(got, tc.want) {
				t.Errorf("log %.200q\nwant %.200q", got, tc.want)
			}
		})
	}
	t.Run("both", func(t *testing.T) {
		r := n.bundle("both", nil, "both", "x", "y")
		n.start(r)
		n.wait("both")
		got := n.entries(r.LogPath)
		slices.Sort(got)
		if want := []string{"stderr F y", "stdout F x"}; !slices.Equal(got, want) {
			t.Errorf("log %q, want %q", got, want)
		}
	})
}

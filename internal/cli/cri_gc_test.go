package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/imagestore"
)

func TestGCFlags(t *testing.T) {
	for text, c := range map[string]struct {
		want cri.GC
		err  string
	}{
		"":                {},
		"--gc-min-age=1h": {}, // no limit
		"--gc-sandboxes=5 --gc-min-age=1m": {want: cri.GC{
			Every: time.Minute, Dead: cri.DeadLimits{Sandboxes: 5, MinAge: time.Minute},
		}},
		"--gc-images-high=90 --gc-every=5m": {want: cri.GC{
			Every: 5 * time.Minute, ImageLimits: imagestore.Thresholds{HighPercent: 90, LowPercent: 80, MinAge: 2 * time.Minute},
		}},
		"--gc-images-max-age=24h": {want: cri.GC{
			Every: time.Minute, ImageLimits: imagestore.Thresholds{HighPercent: 100, LowPercent: 80, MinAge: 2 * time.Minute, MaxAge: 24 * time.Hour},
		}},
		"--gc-images-high=50":                  {err: "--gc-images-low is 80, want 0 to --gc-images-high, which is 50"},
		"--gc-max-age=-1s":                     {err: "--gc-max-age is -1s, want 0 or more"},
		"--gc-attempts=-1":                     {err: "--gc-attempts is -1, want 0 or more"},
		"--gc-sandboxes=1 --gc-every=0":        {err: "--gc-every is 0s, want more than 0"},
		"--gc-containers=-2 --gc-min-age=-1ms": {err: "--gc-containers is -2"},
	} {
		var o gcOptions
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(f)
		if err := f.Parse(strings.Fields(text)); err != nil {
			t.Fatal(err)
		}
		got, err := o.config()
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", text, err, c.err)
			}
		case err != nil || got != c.want:
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, c.want)
		}
	}
}

package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignalsOfAnInstantAreOneRequest(t *testing.T) {
	names := map[string]syscall.Signal{
		"int": syscall.SIGINT, "term": syscall.SIGTERM, "hup": syscall.SIGHUP, "pipe": syscall.SIGPIPE,
	}
	for name, c := range map[string]struct{ sent, want string }{ // signals and waits
		"one":                                  {"int", "int"},
		"two at once":                          {"int int", "int"},
		"two within an instant":                {"int 299ms int", "int"},
		"many count from the first":            {"int 200ms int 200ms int", "int int"},
		"two after each other":                 {"int 300ms int", "int int"},
		"of two kinds":                         {"int term int term", "int term"},
		"a terminal that closes":               {"hup hup", "hup"},
		"the second request comes twice, too":  {"int 1s int int", "int int"},
		"each write to nobody may be the last": {"pipe pipe", "pipe pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				in, out := make(chan os.Signal), make(chan os.Signal, 8)
				ended := make(chan struct{})
				go func() { defer close(ended); requests(ctx, in, out) }()
				for _, word := range strings.Fields(c.sent) {
					if d, err := time.ParseDuration(word); err == nil {
						time.Sleep(d)
						continue
					}
					in <- names[word]
				}
				synctest.Wait()
				cancel()
				<-ended
				close(out)
				var got []os.Signal
				for sig := range out {
					got = append(got, sig)
				}
				var want []os.Signal
				for _, word := range strings.Fields(c.want) {
					want = append(want, names[word])
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		})
	}
}

package imagestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-run/berth/internal/testutil/images"
)

// Somebody collects all the time, and everything that may go: what is pulled
// comes nevertheless, also if it shares layers with what is removed meanwhile.
func TestPullUnderWayIsNotCollected(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	shared := []v1.Layer{big(t, 31, 60_000), big(t, 32, 60_000)}
	var refs []string
	for i := range uint64(4) {
		refs = append(refs, registry.Push(fmt.Sprintf("app%d:v1", i), images.Image(t, append(shared[:2:2], big(t, 40+i, 30_000))...)))
	}
	for _, kind := range []string{overlayName, nativeName} {
		t.Run(kind, func(t *testing.T) {
			s := open(t, func(c *Config) { c.Snapshotter = kind })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var collecting, pulling sync.WaitGroup
			rounds := 0
			collecting.Go(func() {
				for ; ctx.Err() == nil; rounds++ {
					if _, err := s.Collect(ctx, nothingInUse, Thresholds{HighPercent: 1}); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					if _, err := s.Prune(ctx, true, nothingInUse); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
			for _, ref := range refs {
				pulling.Go(func() {
					for range 4 {
						img, err := s.Pull(t.Context(), ref, nil, nil)
						if err != nil {
							t.Error(err)
						}
						if err := s.Remove(t.Context(), img.ID); err != nil && !errors.Is(err, ErrNotFound) {
							t.Error(err)
						}
					}
				})
			}
			pulling.Wait()
			cancel()
			collecting.Wait()
			if rounds == 0 {
				t.Fatal("nothing was collected meanwhile")
			}
			if _, err := s.Prune(t.Context(), true, nothingInUse); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(nothing, leftovers(t, s)); diff != "" {
				t.Error(diff)
			}
			contentOf(t, s, pull(t, s, refs[0]))
		})
	}
}

package cri

import (
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A command that is run while the container's limits are updated reads one
// specification or the other, never half of one.
func TestSpecificationIsReadWhole(t *testing.T) {
	bundle := t.TempDir()
	spec := &specs.Spec{Version: specs.Version, Annotations: map[string]string{}}
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		spec.Annotations[string(c)] = string(make([]byte, 4096))
	}
	if err := writeSpec(bundle, spec); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := writeSpec(bundle, spec); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 300 {
		if got, err := readSpec(bundle); err != nil || len(got.Annotations) != len(spec.Annotations) {
			t.Errorf("read %d annotations of %d: %v", len(got.Annotations), len(spec.Annotations), err)
			break
		}
	}
	close(stop)
	writer.Wait()
}

package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// Whatever is in a file of state: it is what its name says and comes back as it
// is, or it is broken; in either case the others are read.
func FuzzLoad(f *testing.F) {
	sb, c := objects()
	for _, v := range []any{sb, c} {
		raw, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	f.Add([]byte(`null`))
	f.Add([]byte(`{"id":"../../x","config":{}}`))
	f.Add([]byte(`{"id":"x","config":null}`))
	f.Add([]byte(`{"id":"x","config":{},"resources":{"memoryLimitInBytes":"x"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		s, _ := open2(t, dir, "one")
		if err := s.PutSandbox(sb); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{sandboxes, containers} {
			if err := os.MkdirAll(filepath.Join(dir, kind), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.path(kind, "x"), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		first, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		if len(first.Sandboxes)+len(first.BrokenSandboxes) != 2 || len(first.Containers)+len(first.BrokenContainers) != 1 {
			t.Fatalf("loaded %+v", first)
		}
		for _, v := range first.Containers {
			if v.ID != "x" || v.Config.P == nil {
				t.Fatalf("accepted %+v", v)
			}
			if err := s.PutContainer(v); err != nil {
				t.Fatal(err)
			}
		}
		again, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first.Containers, again.Containers, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	})
}

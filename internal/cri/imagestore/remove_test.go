package imagestore

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/testutil/images"
)

func namesOf(t *testing.T, s *Store) []string {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, img := range all {
		names = append(names, strings.Join(img.Tags, ","))
	}
	return names
}

func TestRemove(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	built := images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))
	one, two := registry.Push("app:one", built), registry.Push("app:two", built)
	digest, _ := built.Digest()
	byDigest := strings.TrimSuffix(one, ":one") + "@" + digest.String()
	cases := map[string]struct {
		remove func(img Image) string
		want   []string // tags left, one entry an image
	}{
		"one of two tags only untags":    {func(Image) string { return one }, []string{two}},
		"the digest goes, the tags stay": {func(Image) string { return byDigest }, []string{one + "," + two}},
		"by id all names go":             {func(i Image) string { return i.ID }, []string{}},
		"by short id all names go":       {func(i Image) string { return i.ID[7:15] }, []string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t, nil)
			pull(t, s, one)
			img := pull(t, s, two)
			if err := s.Remove(t.Context(), c.remove(img)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, namesOf(t, s)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("with the last tag everything goes", func(t *testing.T) {
		s := open(t, nil)
		pull(t, s, one)
		if err := s.Remove(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int{"blobs": 0, "ingests": 0, "layers": 0, "leases": 0}, leftovers(t, s)); diff != "" {
			t.Error(diff)
		}
		if err := s.Remove(t.Context(), one); !errors.Is(err, ErrNotFound) {
			t.Errorf("second removal: %v", err)
		}
	})
}

func TestMovedTagLeavesADanglingImage(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	s := open(t, nil)
	old := pull(t, s, registry.Push("app:v1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "old"})))))
	ref := registry.Push("app:v1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "new"}))))
	fresh := pull(t, s, ref)
	if got, err := s.Get(t.Context(), ref); err != nil || got.ID != fresh.ID {
		t.Errorf("the tag means %s, %v", got.ID, err)
	}
	got, err := s.Get(t.Context(), old.ID)
	if err != nil || len(got.Tags) != 0 || len(got.Digests) != 1 {
		t.Errorf("old image: %+v, %v", got, err)
	}
	pruned, err := s.Prune(t.Context(), false, nothingInUse)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Victim{{ID: old.ID, Reason: "dangling"}}, pruned.Images); diff != "" || pruned.FreedBytes == 0 {
		t.Errorf("%s; freed %d", diff, pruned.FreedBytes)
	}
	if _, err := s.Get(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

func TestPruneAllKeepsWhatIsInUse(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	s := open(t, nil)
	used := pull(t, s, registry.Push("used:v1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "1"})))))
	pull(t, s, registry.Push("unused:v1", images.Image(t, images.Layer(t, images.Text(map[string]string{"a": "2"})))))
	if _, err := s.Prune(t.Context(), true, func(id string) bool { return id == used.ID }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(used.Tags, namesOf(t, s)); diff != "" {
		t.Error(diff)
	}
}

func TestRemovedImageStaysUnderARunningContainer(t *testing.T) {
	registry := images.NewRegistry(t, images.RegistryOptions{})
	want := images.Text(map[string]string{"a": "1", "b": "2"})
	s := open(t, nil)
	img := pull(t, s, registry.Push("app:v1", images.Image(t, images.Layer(t, want))))
	mounts, err := s.Prepare(t.Context(), "c1", img, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, filesOf(t, mounts)); diff != "" {
		t.Error(diff)
	}
	if err := s.Release(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(t.Context(), "c2", img, SnapshotOptions{}); err == nil {
		// The layers are free now but still there; they must go with the collection.
		if err := s.Release(t.Context(), "c2"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Collect(t.Context(), nothingInUse, never); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"blobs": 0, "ingests": 0, "layers": 0, "leases": 0}, leftovers(t, s)); diff != "" {
		t.Error(diff)
	}
	if _, err := s.Prepare(t.Context(), "c3", img, SnapshotOptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("prepare of a removed image: %v", err)
	}
}

package shim_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/shim"
)

// Programs built differently have different ids, also those that Go did not build.
func TestBuildID(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	id, err := shim.BuildID(self)
	if err != nil || id == "" {
		t.Fatalf("id %q, %v", id, err)
	}
	again, err := shim.BuildID("/proc/self/exe")
	if err != nil || again != id {
		t.Errorf("id %q, then %q, %v", id, again, err)
	}
	if shimBinary != "" {
		ids := make(map[string]string)
		for _, path := range []string{self, shimBinary, nextBinary, helperBinary} {
			id, err := shim.BuildID(path)
			if err != nil || ids[id] != "" {
				t.Errorf("%s has id %q like %q, %v", path, id, ids[id], err)
			}
			ids[id] = path
		}
	}
	for content, want := range map[string]string{
		"":                    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"#!/bin/sh\n":         "sha256:a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf",
		"\x7fELF\x02\x01\x01": "sha256:ced1af6d51438341a0335cc00e1c2867fb718a537c1173cf210070a6b1cdf40a", // torn
	} {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := shim.BuildID(path); err != nil || id != want {
			t.Errorf("%q has id %q, %v", content, id, err)
		}
	}
	if id, err := shim.BuildID(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Errorf("what is not there has id %q", id)
	}
}

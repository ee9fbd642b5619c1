package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKinds(t *testing.T) {
	got, err := read(strings.NewReader(`Flag --node-ip has been deprecated
I1201 14:20:01.000001    7001 kubelet.go:100] "Starting kubelet"
E1201 14:20:01.000002    7001 pod_workers.go:1324] "Error syncing pod, skipping" err="one" pod="default/a"
E1201 14:20:02.000003    7001 pod_workers.go:1325] "Error syncing pod, skipping" err="two" pod="default/b"
E1201 14:20:02.000004    7001 generic.go:308] "GenericPLEG: Unable to retrieve pods" err="rpc error: code = Unavailable desc = connection error: refused"
E1201 14:20:02.000005    7001 nodelease.go:50] "Failed to get node when trying to set owner ref to the node lease" err="nodes \"n\" not found" node="n"
W1201 14:20:03.000004    7001 watcher.go:93] Error while processing event ("/sys/fs/cgroup/a": 0x40000100 == IN_CREATE): no such file
W1201 14:20:04.000005    7001 watcher.go:93] Error while processing event ("/sys/fs/cgroup/b": 0x40000200 == IN_CREATE): no such file
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[kind]complaints{
		{"E", "pod_workers.go", `"Error syncing pod, skipping"`}:                              {2, `"Error syncing pod, skipping" err="one" pod="default/a"`},
		{"W", "watcher.go", "Error while processing event (…: … == IN_CREATE): no such file"}: {2, `Error while processing event ("/sys/fs/cgroup/a": 0x40000100 == IN_CREATE): no such file`},
	}
	values := map[kind]complaints{}
	for k, c := range got {
		values[k] = *c
	}
	if d := cmp.Diff(want, values, cmp.AllowUnexported(kind{}, complaints{})); d != "" {
		t.Error(d)
	}
}

func TestOnlyErrorsOfOursAloneCount(t *testing.T) {
	both, mine, theirs, warning := kind{"E", "a.go", "both"}, kind{"E", "a.go", "mine"}, kind{"E", "a.go", "theirs"}, kind{"W", "a.go", "mine"}
	one := &complaints{1, "text"}
	if n := compare(io.Discard, map[kind]*complaints{both: one, mine: one, warning: one}, map[kind]*complaints{both: one, theirs: one}); n != 1 {
		t.Errorf("%d kinds count, want 1", n)
	}
}

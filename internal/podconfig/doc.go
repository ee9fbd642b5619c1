// Package podconfig turns a pod and the facts of its node into the configs that
// a CRI runtime is given: Sandbox and Container, and the files that go with
// them (/etc/hosts, /etc/resolv.conf).
//
// It is pure: it reads no file, no clock and no network, starts nothing and
// logs nothing. What must be looked up (ConfigMaps, the image's user, where a
// volume is mounted) is asked for by Needs and handed in as Facts and
// ContainerFacts. Equal input gives equal output, byte for byte: what comes
// from a map is sorted.
//
// The rules are the kubelet's (Kubernetes 1.37). Errors are *lifecycle.Failed,
// with the reason the status shows, and say what to do.
package podconfig

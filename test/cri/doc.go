// Package cri proves berth's container runtime with the two programs that the
// Kubernetes project offers for that: critest, whose specs say what a runtime
// must do, and crictl. Both are built from upstream's module and meet
// `berth cri` in namespaces of their own.
//
// The images that critest pulls are made here, under the names it knows, and come
// from a registry on the loopback address: nothing is fetched from elsewhere. One
// constant of critest is changed when it is built: the digest of an image that
// only upstream's registry has (see build_test.go).
//
// It is a module of its own, so that what critest and crictl need does not become
// a dependency of berth.
package cri

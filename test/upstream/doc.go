// Package upstream holds berth's core against the kubelet's own code. It is a
// module of its own, because that code brings the whole kubelet with it.
package upstream

// Package criserver serves a container runtime over gRPC, as the Kubernetes
// container runtime interface (CRI) has it: to a kubelet, crictl or critest.
//
// It translates between messages and Go calls and does nothing else. Each error
// leaves with the gRPC code that callers of the CRI decide by; lists of any
// length can be streamed; an event stream tells the caller when it listens.
package criserver

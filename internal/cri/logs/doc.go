// Package logs reads container logs in the CRI format, also while they are
// written and rotated.
//
// k8s.io/cri-client reads such logs too, but only the current file, asks the
// runtime over gRPC whether to go on, and may wait long after a container's end
// before it notices. Here nothing is lost between two rotations, rotated files
// count for the last lines asked for, and the caller says when the container has
// ended.
package logs

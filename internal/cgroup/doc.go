// Package cgroup keeps the cgroups of pods: one for each pod, below one for each
// quality-of-service class, below one root.
//
//	/berth                       the root; its name is configurable
//	├── podUID                   Guaranteed pods
//	├── burstable/podUID
//	└── besteffort/podUID
//
// Containers' own cgroups are made below their pod's by whoever starts them.
//
// Both layouts of the kernel are served: version 2, and version 1 with its one
// hierarchy a controller, also in the hybrid form where version 2 is mounted
// beside it. All methods may be repeated and are safe for concurrent use; calls
// for one pod must not overlap.
//
// How much a pod gets is computed by PodResources, which is pure.
package cgroup

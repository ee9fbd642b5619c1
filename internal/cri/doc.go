// Package cri is berth's embedded container runtime: the Kubernetes container
// runtime interface as Go interfaces, in the agent's own process, without a
// daemon.
//
// A Service makes pod sandboxes (pinned namespaces, network, shared files) and
// containers (a snapshot of an image, an OCI bundle) and lets berth-shim run
// them. It needs no process of its own for a pod, except where the containers
// of a pod share a pid namespace.
//
// # What it promises
//
//   - Every call of the CRI may be repeated; stopping what has stopped and
//     removing what is gone succeeds.
//   - A call that fails takes back what it made: mounts, namespaces, addresses,
//     snapshots, processes. What a killed agent left half made goes with the
//     next Recover.
//   - Work on different sandboxes and containers goes in parallel. One object
//     does one thing at a time; a stop never waits for another stop.
//   - Containers outlive the agent. A new Service on the same folders takes
//     them over and learns of exits that happened meanwhile; it starts nothing.
//   - An exit code that is not known is reported as unknown, never invented.
//
// # What it never does
//
// It knows nothing of pods beyond what the CRI says, restarts nothing, and
// chooses nothing that its caller could have chosen. It removes nothing unasked,
// unless Config.GC says what.
package cri

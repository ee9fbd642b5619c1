// Package cni connects sandboxes by CNI plugins, as a configuration of the machine
// says, and chooses between them and berth's own bridge.
//
// Network runs the plugins. It is built on libcni, which knows the protocol; what
// is here is what libcni leaves to its callers:
//
//   - The folder of configurations is read anew for each sandbox, so no change of
//     it is missed. The first file by name counts, as in other runtimes.
//   - What a sandbox is connected with is on disk before the first plugin runs. It
//     is torn down with that, whatever has become of the folder meanwhile, and
//     also if berth was killed half way.
//   - Two plugins never work on one sandbox at the same time, even if one was
//     started by a berth that was killed: the record of a sandbox is locked by all
//     who work on it.
//   - Teardown may be repeated, needs no namespace, and forgets a sandbox only when
//     each plugin has succeeded.
//
// Records lie in the root and not in the run folder: plugins remember addresses
// beyond a restart of the machine, and must be told then that they are free.
//
// Switch is the network of a node: it has both, and connects each sandbox by CNI
// if there is a configuration. Each sandbox is torn down by who connected it.
//
// Known limits: one network a sandbox, on eth0; the CHECK and GC commands are not
// used (GC would take the sandboxes of another runtime with the same network for
// garbage).
package cni

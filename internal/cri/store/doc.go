// Package store keeps what the embedded runtime must know again after its
// process was killed: one small JSON file for each sandbox and container.
//
// A file is written whole and renamed into place, so a reader sees the old or
// the new state, never half of one. A file that can't be read costs that object
// only, and Load says which. The files describe namespaces, mounts and
// processes, none of which outlives the machine: Open empties a folder that was
// written before the last boot and tells the caller so.
package store

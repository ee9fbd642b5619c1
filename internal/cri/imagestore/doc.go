// Package imagestore keeps the container images of one node and the
// filesystems made from them. It is containerd's image machinery (content
// store, metadata database, overlay snapshotter, registry resolver, unpacker)
// used in process, without containerd's daemon.
//
// # What it promises
//
//   - What is stored under a digest has that digest. Data that was truncated or
//     changed, on the wire or on disk, is noticed and fetched again.
//   - Everything survives a kill at any moment. What a killed pull has fetched
//     is used by the next one; what nobody uses any more goes with the next
//     Collect.
//   - Garbage collection never removes what is being pulled (it is leased) nor
//     the layers under a snapshot that was prepared and not released.
//   - A Root belongs to one Store at a time; a second Open fails with ErrInUse.
//
// # What it never does
//
// It doesn't decide whether to pull (that is the pull policy of the caller),
// doesn't mount anything for containers (it returns the mounts), and starts no
// goroutine that outlives the call that needed it, except in Run.
//
// # Names
//
// A record in the database maps a name to the digest of a manifest or index.
// Three forms of names are in use:
//
//	docker.io/library/busybox:latest            a tag
//	docker.io/library/busybox@sha256:…          where it was pulled from, by digest
//	sha256:…                                    the image's id; keeps an imported image without name
//
// An image whose tags have all moved on keeps its other names and so stays,
// dangling, until it is removed or pruned.
package imagestore

// Package volume puts a pod's volumes on the host and takes them away again.
//
// Plan (pure) says what a pod's volumes come to on the disk and what of earlier
// tries has to go; Manager carries it out. Each kind of volume has a file of
// its own. Contents that come from the API (configMap, secret, downwardAPI,
// projected) are worked out in pure functions and written atomically: a reader
// sees either all of the old or all of the new files.
//
// What it promises: Prepare, Refresh and Teardown may be repeated and may be
// cut off at any moment, by a crash too; everything is found again from the
// disk and the kernel's mounts. The content of a hostPath volume is never
// touched: it is never mounted below the pod's folder but for sub-paths, and
// removal never enters a mount, whatever is mounted where.
//
// Not enforced: emptyDir.sizeLimit on disk. Block volumes, claims and network
// file systems do not exist here; they are refused by name.
package volume

// Package ocispec renders the OCI runtime specification of a container from
// its CRI configuration, its image's configuration and what is known about the
// sandbox and the host.
//
// It is pure: every path in an Input has been resolved, every file read and
// every device looked up by the caller. Equal input gives an equal Spec. It
// starts from containerd's default specification (Host.Base) and keeps the
// meaning containerd's CRI gives to each CRI field; where it differs, the
// function says so.
package ocispec

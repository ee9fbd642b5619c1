// Package shim is the client of berth-shim, the one small process per node
// that owns the containers, and the protocol between the two.
//
// The shim starts containers with libcontainer, reads their output into log
// files in the CRI format, reaps them, and reports how they ended. berth can be
// killed, restarted or upgraded while containers run; so can the shim, with the
// losses listed at Exit.Known and CreateRequest.
//
// Promises:
//   - A container whose Create returned nil is known to this and every later
//     shim on the same run directory until Delete, whatever is killed when.
//   - A container's end is reported through Events at least once to everyone
//     who subscribes before Delete, after all its output is in the log.
//   - An exit code is what the kernel said, or Exit.Known is false.
//
// This package does not import libcontainer, so a program that uses it needs no
// cgo. The server is in internal/shim/server, the program in cmd/berth-shim.
package shim

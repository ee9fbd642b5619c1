// Package server is the inside of berth-shim: it owns containers with
// libcontainer, their output, and their ends, and serves the protocol of
// internal/shim.
//
// Everything about a container that outlives the process is in
// RUNDIR/containers/ID (see state.go); the container's processes hold the other
// ends of the FIFOs there open themselves. So a shim that is killed takes
// nothing with it, and the next one adopts what it finds (adopt.go).
//
// There are no goroutines per idle container: one epoll loop (poller.go) watches
// processes, output and OOM notices, and starts a goroutine when there is
// something to do.
package server

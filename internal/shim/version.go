package shim

import "fmt"

const (
	// Protocol is the version of the protocol this package speaks. Version 2 adds
	// Upgrade and DeleteNotRun, version 3 programs that run containers.
	Protocol = 3
	// MinProtocol is the oldest version it still understands.
	MinProtocol = 1
)

// Names of the files in a shim's run directory.
const (
	SocketName = "shim.sock" // ttrpc
	FDsName    = "fds.sock"  // datagrams carrying file descriptors
	LockName   = "shim.lock" // flock held while a shim serves
	StartName  = "start.lock"
	LogName    = "shim.log"
)

// CheckProtocol says whether two peers understand each other: theirs and
// theirMin are the newest and oldest versions the other side speaks.
func CheckProtocol(theirs, theirMin uint32) error {
	switch {
	case theirMin > Protocol:
		return fmt.Errorf("the shim speaks protocol %d and understands %d at the oldest, this berth knows %d: use the newer berth, or stop the containers and the shim", theirs, theirMin, Protocol)
	case theirs < MinProtocol:
		return fmt.Errorf("the shim speaks protocol %d, this berth needs at least %d: restart the shim", theirs, MinProtocol)
	}
	return nil
}

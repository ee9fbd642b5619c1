package home

import (
	"os"
	"path/filepath"
	"strings"
)

// The names that berth gives in its folders. Nothing else is removed.
const (
	markerName = "berth.json"
	lockName   = "agent.lock"
	claimName  = "root" // in the run folder: the root that it belongs to
	newSuffix  = ".new" // of a file that is to replace one
)

// seccompName is the only folder that people write: berth does not remove it.
const seccompName = "seccomp"

// rootNames may be in a root before it is marked: what the first agent makes
// until then, what a new file system holds, and what people prepare.
var rootNames = []string{lockName, markerName + newSuffix, "agent.log", "lost+found", seccompName}

// Database is the file of the node's records.
func (h Home) Database() string { return filepath.Join(h.Root, "berth.db") }

// BrokenDatabase begins the names of damaged databases that were put aside.
func (h Home) BrokenDatabase() string { return h.Database() + ".broken-" }

// brokenDatabases are those that are there.
func (h Home) brokenDatabases() []string {
	entries, _ := os.ReadDir(h.Root)
	var paths []string
	for _, e := range entries {
		if path := filepath.Join(h.Root, e.Name()); strings.HasPrefix(path, h.BrokenDatabase()) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Images is the folder of images and containers' file systems.
func (h Home) Images() string { return filepath.Join(h.Root, "images") }

// Logs is the folder of containers' logs.
func (h Home) Logs() string { return filepath.Join(h.Root, "logs", "pods") }

// AgentLog is what background agents log.
func (h Home) AgentLog() string { return filepath.Join(h.Root, "agent.log") }

// Seccomp is the folder that localhost seccomp profiles are named in.
func (h Home) Seccomp() string { return filepath.Join(h.Root, seccompName) }

// Shim is the run folder of the shim.
func (h Home) Shim() string { return filepath.Join(h.Run, "shim") }

// CRI is the folder of sandboxes and bundles.
func (h Home) CRI() string { return filepath.Join(h.Run, "cri") }

// Network is the folder of addresses in use.
func (h Home) Network() string { return filepath.Join(h.Run, "network") }

// CNI is the folder of what network plugins were asked for. They remember it beyond
// a restart of the machine, so berth must.
func (h Home) CNI() string { return filepath.Join(h.Root, "cni") }

// RuntimeHandlers is the file of the runtime handlers that the agent was given.
func (h Home) RuntimeHandlers() string { return filepath.Join(h.Root, "runtime-handlers.json") }

// PutRuntimeHandlers replaces that file.
func (h Home) PutRuntimeHandlers(data []byte) error { return writeFile(h.RuntimeHandlers(), data) }

// Socket is where the agent answers.
func (h Home) Socket() string { return filepath.Join(h.Run, "berth.sock") }

// CRISocket is where berth cri answers if nothing else is asked for.
func (h Home) CRISocket() string { return filepath.Join(h.Run, "berth-cri.sock") }

func (h Home) lock() string { return filepath.Join(h.Root, lockName) }

// madeInRoot lists all that berth makes there, in the order of removal. The marker
// and the lock come last: what was begun can be taken up again, and nobody else
// comes in.
func (h Home) madeInRoot() []string {
	return append(h.brokenDatabases(),
		h.Database(), h.Images(), filepath.Join(h.Root, "logs"), filepath.Join(h.Root, "pods"), h.CNI(),
		h.RuntimeHandlers(), h.RuntimeHandlers()+newSuffix,
		h.AgentLog(), filepath.Join(h.Root, markerName+newSuffix), filepath.Join(h.Root, markerName), h.lock(),
	)
}

func (h Home) madeInRun() []string {
	return []string{h.Shim(), h.CRI(), h.Network(), h.Socket(), h.CRISocket(), filepath.Join(h.Run, claimName+newSuffix), filepath.Join(h.Run, claimName)}
}

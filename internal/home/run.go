package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runNames may be in a run folder that nobody has claimed.
var runNames = []string{claimName, claimName + newSuffix}

// checkRun refuses a run folder that belongs to another root that exists, or to
// somebody else.
func (h Home) checkRun() error {
	if h.Run == h.Root || strings.HasPrefix(h.Root, h.Run+"/") {
		return fmt.Errorf("cannot use the run folder %s: the root %s is there; choose another", h.Run, h.Root)
	}
	owner, err := ownerOfRun(h.Run)
	if err != nil {
		return err
	}
	switch {
	case owner == "":
		names := runNames
		if h.known.Run == h.Run {
			// Somebody tried to remove it, and what is mounted there stayed.
			names = h.namesInRun()
		}
		return nothingElse("run folder", h.Run, names)
	case owner == h.Root:
		return nil
	}
	theirs, err := os.Stat(owner)
	if err != nil {
		return nil //nolint:nilerr // that root is no more
	}
	if mine, err := os.Stat(h.Root); err == nil && os.SameFile(mine, theirs) {
		return nil // the root was moved, or is mounted elsewhere
	}
	return fmt.Errorf("the run folder %s belongs to the root %s: roots need run folders of their own, leave --run out or choose another", h.Run, owner)
}

// keepsRun says whether the run folder that the root remembers is still there: it
// says so itself, or what berth makes is in it and nobody else claims it.
func (h Home) keepsRun() bool {
	owner, err := ownerOfRun(h.known.Run)
	if err != nil || owner != "" {
		return err == nil && owner == h.Root
	}
	there, err := others(h.known.Run, nil)
	return err == nil && slices.ContainsFunc(there, func(name string) bool { return slices.Contains(h.namesInRun(), name) })
}

// namesInRun are those of all that berth makes in a run folder.
func (h Home) namesInRun() []string {
	var names []string
	for _, path := range h.madeInRun() {
		names = append(names, filepath.Base(path))
	}
	return names
}

// ownerOfRun is the root that claimed a run folder; empty if none did.
func ownerOfRun(run string) (string, error) {
	data, err := os.ReadFile(filepath.Join(run, claimName))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot look whose run folder it is: %w", err)
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

// claimRun makes the run folder and writes into it whose it is.
func (h Home) claimRun() error {
	if err := os.MkdirAll(h.Run, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return fmt.Errorf("cannot make the run folder: %w", err)
	}
	if err := h.checkRun(); err != nil {
		return err
	}
	if owner, err := ownerOfRun(h.Run); err != nil || owner == h.Root {
		return err
	}
	return h.writeClaim()
}

func (h Home) writeClaim() error {
	if err := writeFile(filepath.Join(h.Run, claimName), []byte(h.Root+"\n")); err != nil {
		return fmt.Errorf("cannot make the run folder this root's: %w", err)
	}
	return nil
}

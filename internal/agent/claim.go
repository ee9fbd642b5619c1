package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// runOwner is the file in a run folder that names the root it belongs to. Two
// roots in one run folder would take each other's pods for nobody's.
const runOwner = "root"

// checkRun refuses a run folder that belongs to another root.
func (c *Config) checkRun() error {
	data, err := os.ReadFile(filepath.Join(c.Run, runOwner))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look whose run folder it is: %w", err)
	}
	owner := strings.TrimSuffix(string(data), "\n")
	if owner == "" || owner == c.Root {
		return nil
	}
	theirs, err := os.Stat(owner)
	if err != nil {
		return nil //nolint:nilerr // that root is no more
	}
	if mine, err := os.Stat(c.Root); err == nil && os.SameFile(mine, theirs) {
		return nil
	}
	return fmt.Errorf("the run folder %s belongs to the root %s: roots need run folders of their own, leave --run out or choose another", c.Run, owner)
}

// claimRun makes the run folder this root's.
func (c *Config) claimRun() error {
	if err := c.checkRun(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Run, runOwner), []byte(c.Root+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot make the run folder this root's: %w", err)
	}
	return nil
}

package agent

import (
	"fmt"
	"strconv"
)

const (
	settingsBucket = "settings"
	podPidsSetting = "podPids"
)

// NoLimit is a limit that is none.
const NoLimit = -1

// choosePodPids fills in the limit of a pod's processes where none is asked for:
// it is that of the agent before, so that a limit does not vanish because another
// command took over.
func (a *Agent) choosePodPids() error {
	if a.cfg.PodPids != 0 {
		a.db.Put(settingsBucket, podPidsSetting, strconv.AppendInt(nil, a.cfg.PodPids, 10))
		return nil
	}
	a.cfg.PodPids = NoLimit
	all, err := a.db.All(settingsBucket)
	if err != nil {
		return fmt.Errorf("cannot read the settings of the last agent: %w", err)
	}
	if n, err := strconv.ParseInt(string(all[podPidsSetting]), 10, 64); err == nil && n > 0 {
		a.cfg.PodPids = n
	}
	return nil
}

// PodPids is how many processes and threads a pod may have; NoLimit: as many as
// the machine can hold.
func (a *Agent) PodPids() int64 { return a.cfg.PodPids }

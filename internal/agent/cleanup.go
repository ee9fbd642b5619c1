package agent

import (
	"context"
	"errors"
	"fmt"
)

// Cleanup stops all pods without grace and removes everything that berth made:
// containers, networks, rules, cgroups, mounts, the shim, and its files in the root
// and the run folder, images and logs included. Call it instead of Run and
// Close. What could not be removed is in the error; left are the files there that
// are not berth's, which stay.
func (a *Agent) Cleanup(ctx context.Context) (left []string, err error) {
	// Until the folders are gone, or another agent would settle in them.
	release, err := a.lock.Keep()
	if err != nil {
		return nil, err
	}
	defer release()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.cri.Run(running) }()
	errs := []error{a.cri.Cleanup(ctx)}
	stop()
	errs = append(errs, ignoreCancel(<-ended))
	uids, err := a.volumes.List()
	errs = append(errs, err)
	for _, uid := range uids {
		errs = append(errs, a.volumes.RemovePod(ctx, uid))
	}
	errs = append(errs, a.shim.Shutdown(ctx), a.cgroups.Cleanup(ctx), a.closers.close())
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cannot clean up all, so the files stay: %w", err)
	}
	return a.cfg.home.Remove()
}

package agent

import (
	"context"
	"time"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// networkEvery is how often the network is looked at for what others have
// changed: a firewall that was loaded anew takes foreign rules with it.
const networkEvery = time.Minute

// keepNetwork puts the network's rules and bridge back when they are gone.
func (r *Runtime) keepNetwork(ctx context.Context) error {
	tick := time.NewTicker(networkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.network.Check(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("cannot put the network of the pods right", "err", err)
		}
	}
}

// collectEvery is how often the disk is looked at for images to remove, as
// often as the kubelet does.
const collectEvery = 5 * time.Minute

// collectImages removes images that no container uses when the disk gets full.
func (a *Agent) collectImages(ctx context.Context) error {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		inUse, err := a.imagesInUse(ctx)
		if err == nil {
			_, err = a.images.Collect(ctx, inUse, imagestore.DefaultThresholds)
			a.forgetImages(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("cannot collect unused images", "err", err)
		}
	}
}

// imagesInUse tells the images that containers were made from, and those that
// they have as volumes.
func (a *Agent) imagesInUse(ctx context.Context) (func(id string) bool, error) {
	list, err := a.cri.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	used := make(map[string]bool, len(list))
	for _, c := range list {
		used[c.GetImageId()] = true
		status, err := a.cri.ContainerStatus(ctx, c.GetId(), false)
		if err != nil {
			continue // removed meanwhile
		}
		for _, m := range status.GetStatus().GetMounts() {
			if id := m.GetImage().GetImage(); id != "" {
				used[id] = true
			}
		}
	}
	return func(id string) bool { return used[id] }, nil
}

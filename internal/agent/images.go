package agent

import (
	"context"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// Images lists the images that are here.
func (a *Agent) Images(ctx context.Context) ([]imagestore.Image, error) { return a.images.List(ctx) }

// PullImage fetches an image from its registry, for all pods. progress is called
// from the calling goroutine.
func (a *Agent) PullImage(ctx context.Context, ref string, progress func(imagestore.Progress)) (imagestore.Image, error) {
	img, err := a.images.Pull(ctx, ref, nil, progress)
	if err == nil {
		a.runtime.Preloaded(img.ID)
	}
	return img, err
}

// ImportImages reads images from a folder or archive on this machine.
func (r *Runtime) ImportImages(ctx context.Context, path string) ([]imagestore.Image, error) {
	return r.images.Import(ctx, path)
}

// ImportImages reads images from a folder or archive on this machine, for all
// pods. Those that wait for one of them start at once.
func (a *Agent) ImportImages(ctx context.Context, path string) ([]imagestore.Image, error) {
	imported, err := a.Runtime.ImportImages(ctx, path)
	for _, img := range imported {
		a.runtime.Preloaded(img.ID)
	}
	if len(imported) > 0 {
		for _, d := range a.pods.List() {
			a.workers.SourcesChanged(d.Pod.UID)
		}
	}
	return imported, err
}

// RemoveImage takes away a name, or an image with all its names.
func (a *Agent) RemoveImage(ctx context.Context, ref string) error {
	err := a.images.Remove(ctx, ref)
	a.forgetImages(ctx)
	return err
}

// forgetImages forgets the pulls of images that are gone. What cannot be forgotten
// now is with the next removal.
func (a *Agent) forgetImages(ctx context.Context) {
	if err := a.runtime.ImagesRemoved(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn("cannot forget the pulls of images that are gone", "err", err)
	}
}

// PruneImages removes images that no container uses: those without a tag, or all.
func (a *Agent) PruneImages(ctx context.Context, all bool) (imagestore.Collected, error) {
	inUse, err := a.imagesInUse(ctx)
	if err != nil {
		return imagestore.Collected{}, err
	}
	defer a.forgetImages(ctx)
	return a.images.Prune(ctx, all, inUse)
}

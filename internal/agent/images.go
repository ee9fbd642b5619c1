package agent

import (
	"context"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// Images lists the images that are here.
func (a *Agent) Images(ctx context.Context) ([]imagestore.Image, error) { return a.images.List(ctx) }

// PullImage fetches an image from its registry. progress is called from the
// calling goroutine.
func (a *Agent) PullImage(ctx context.Context, ref string, progress func(imagestore.Progress)) (imagestore.Image, error) {
	return a.images.Pull(ctx, ref, nil, progress)
}

// ImportImages reads images from a folder or archive on this machine.
func (r *Runtime) ImportImages(ctx context.Context, path string) ([]imagestore.Image, error) {
	return r.images.Import(ctx, path)
}

// ImportImages reads images from a folder or archive on this machine. Pods that
// wait for one of them start at once.
func (a *Agent) ImportImages(ctx context.Context, path string) ([]imagestore.Image, error) {
	imported, err := a.Runtime.ImportImages(ctx, path)
	if len(imported) > 0 {
		for _, d := range a.pods.List() {
			a.workers.SourcesChanged(d.Pod.UID)
		}
	}
	return imported, err
}

// RemoveImage takes away a name, or an image with all its names.
func (a *Agent) RemoveImage(ctx context.Context, ref string) error { return a.images.Remove(ctx, ref) }

// PruneImages removes images without a name, or all that no container uses.
func (a *Agent) PruneImages(ctx context.Context, all bool) (imagestore.Collected, error) {
	inUse, err := a.imagesInUse(ctx)
	if err != nil {
		return imagestore.Collected{}, err
	}
	return a.images.Prune(ctx, all, inUse)
}

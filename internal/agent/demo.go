package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// demoMaker returns what makes the demo image when a pod needs it; other images,
// and the demo image where its program is not installed, are nobody's to make. It
// is safe for concurrent use.
func demoMaker(store *imagestore.Store, binary string) func(ctx context.Context, image string) error {
	var one sync.Mutex // at a time: a hundred pods may ask at once
	return func(ctx context.Context, image string) error {
		name, err := imagestore.Normalize(image)
		if err != nil || name != imagestore.DemoName || binary == "" {
			return nil //nolint:nilerr // whoever pulls it says what is wrong with the name
		}
		one.Lock()
		defer one.Unlock()
		if _, err = store.DemoImage(ctx, binary); err == nil {
			return nil
		}
		if _, oldErr := store.Get(ctx, name); oldErr == nil {
			return nil // that of an earlier program does as well
		}
		return shortDemoError(err)
	}
}

// shortDemoError leaves out which file could not be written on a full disk.
func shortDemoError(err error) error {
	if errors.Is(err, imagestore.ErrNoSpace) {
		return fmt.Errorf("%w: free some, or choose another disk with --root", imagestore.ErrNoSpace)
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner // the caller says that it is about the demo image
	}
	return err
}

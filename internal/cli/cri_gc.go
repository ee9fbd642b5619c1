package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/imagestore"
)

// gcOptions are the flags of what berth cri removes by itself. Without one that
// is a limit, nothing goes.
type gcOptions struct {
	every  time.Duration
	dead   cri.DeadLimits
	images imagestore.Thresholds
}

func (o *gcOptions) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.every, "gc-every", time.Minute, "how often is looked for what is to go by one of the limits below")
	f.DurationVar(&o.dead.MinAge, "gc-min-age", 0, "dead sandboxes and containers stay for so long at least")
	f.DurationVar(&o.dead.MaxAge, "gc-max-age", 0, "dead sandboxes and containers go after so long (default never)")
	f.IntVar(&o.dead.Sandboxes, "gc-sandboxes", 0, "so many dead sandboxes stay, those that ended last (default all)")
	f.IntVar(&o.dead.Containers, "gc-containers", 0, "so many dead containers stay, those that ended last (default all)")
	f.IntVar(&o.dead.PerContainer, "gc-attempts", 0, "so many dead attempts at one container of a pod stay (default all)")
	f.IntVar(&o.images.HighPercent, "gc-images-high", 0, "images without a container go when the disk is so full, in percent (default never)")
	f.IntVar(&o.images.LowPercent, "gc-images-low", 80, "and until it is no fuller than this, in percent")
	f.DurationVar(&o.images.MinAge, "gc-images-min-age", 2*time.Minute, "images that were used or pulled less than this ago stay")
	f.DurationVar(&o.images.MaxAge, "gc-images-max-age", 0, "images that were not used for so long go, however full the disk is (default never)")
}

// config is nothing if no limit is set; or all that is wrong.
func (o *gcOptions) config() (cri.GC, error) {
	var errs []error
	for flag, d := range map[string]time.Duration{
		"gc-min-age": o.dead.MinAge, "gc-max-age": o.dead.MaxAge, "gc-images-min-age": o.images.MinAge, "gc-images-max-age": o.images.MaxAge,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s is %s, want 0 or more", flag, d))
		}
	}
	for flag, n := range map[string]int{
		"gc-sandboxes": o.dead.Sandboxes, "gc-containers": o.dead.Containers, "gc-attempts": o.dead.PerContainer, "gc-images-high": o.images.HighPercent,
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("--%s is %d, want 0 or more", flag, n))
		}
	}
	images := o.images
	switch {
	case images.HighPercent == 0 && images.MaxAge == 0:
		images = imagestore.Thresholds{}
	case images.HighPercent == 0:
		images.HighPercent = 100 // the disk alone is no reason
	case images.LowPercent < 0 || images.LowPercent > images.HighPercent:
		errs = append(errs, fmt.Errorf("--gc-images-low is %d, want 0 to --gc-images-high, which is %d", images.LowPercent, images.HighPercent))
	}
	if o.every <= 0 {
		errs = append(errs, fmt.Errorf("--gc-every is %s, want more than 0", o.every))
	}
	limits := o.dead
	limits.MinAge = 0
	if limits == (cri.DeadLimits{}) && images == (imagestore.Thresholds{}) {
		return cri.GC{}, errors.Join(errs...)
	}
	return cri.GC{Every: o.every, Dead: o.dead, ImageLimits: images}, errors.Join(errs...)
}

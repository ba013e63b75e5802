package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ImageCollector removes images that no pod uses. It must not remove an image that is
// pinned or in use. [ImageGC] is the default. Its methods are safe for concurrent
// use.
type ImageCollector interface {
	// Run collects now and then until ctx ends, and then returns nil. Nothing is being
	// removed on its behalf when it has returned. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// GarbageCollect makes one collection: it removes images that are too old, and others
	// if there is too little space. Its error says what could not be removed, or that the
	// space could not be freed.
	GarbageCollect(ctx context.Context) error
	// DeleteUnusedImages removes all images that may be removed, whatever space there is.
	DeleteUnusedImages(ctx context.Context) error
	// Preview returns what a collection would decide on now. It removes nothing.
	Preview(ctx context.Context, goal ImageGoal) (ImagePreview, error)
}

// ImagePreview is the input of a plan, and the plan.
type ImagePreview struct {
	Input ImageInput
	Plan  ImagePlan
}

var _ ImageCollector = (*ImageGC)(nil)

// ImagePolicy has the limits of [PlanImages]. The fields and their defaults are those of a
// KubeletConfiguration, imageGCHighThresholdPercent and so on.
type ImagePolicy struct {
	// HighThresholdPercent is the usage of the file system of images, in percent of its
	// size, from which on images are removed for space. Default 85. 100 means never.
	HighThresholdPercent int
	// LowThresholdPercent is the usage at which the removal for space stops. It must be less
	// than HighThresholdPercent. Default 80; a negative number is 0 percent.
	LowThresholdPercent int
	// MinAge is the time from when the collector has seen an image first until it may be
	// removed. Default 2 minutes; a negative number is none.
	MinAge time.Duration
	// MaxAge is the time without use after which an image is removed, whatever space there
	// is. It must be more than MinAge. Default 0: images are not removed for their age.
	MaxAge time.Duration
	// Keep are names of images that are never removed, such as those that a node without a registry cannot pull again:
	// "nginx:1.29", or with an asterisk at the end all full names that begin so, with a registry, as in
	// "registry.example/base/*". A name without a tag and a digest is that with the tag "latest".
	Keep []string
}

// Disabled reports whether images are removed neither for space nor for their age.
func (p ImagePolicy) Disabled() bool { return p.HighThresholdPercent == 100 && p.MaxAge == 0 }

// complete fills in the defaults, and returns all that is wrong at once, as kubelet
// judges it.
func (p ImagePolicy) complete() (ImagePolicy, error) {
	if p.HighThresholdPercent == 0 {
		p.HighThresholdPercent = 85
	}
	switch {
	case p.LowThresholdPercent == 0:
		p.LowThresholdPercent = 80
	case p.LowThresholdPercent < 0:
		p.LowThresholdPercent = 0
	}
	switch {
	case p.MinAge == 0:
		p.MinAge = 2 * time.Minute
	case p.MinAge < 0:
		p.MinAge = 0
	}
	var errs []error
	if p.HighThresholdPercent < 0 || p.HighThresholdPercent > 100 {
		errs = append(errs, fmt.Errorf("HighThresholdPercent %d: must be between 0 and 100", p.HighThresholdPercent))
	}
	if p.LowThresholdPercent > 100 {
		errs = append(errs, fmt.Errorf("LowThresholdPercent %d: must be between 0 and 100", p.LowThresholdPercent))
	}
	if p.LowThresholdPercent >= p.HighThresholdPercent {
		errs = append(errs, fmt.Errorf("LowThresholdPercent %d: must be less than HighThresholdPercent %d",
			p.LowThresholdPercent, p.HighThresholdPercent))
	}
	if p.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("MaxAge %s: must not be negative", p.MaxAge))
	}
	if p.MaxAge > 0 && p.MaxAge <= p.MinAge {
		errs = append(errs, fmt.Errorf("MaxAge %s: must be more than MinAge %s", p.MaxAge, p.MinAge))
	}
	if _, err := newKept(p.Keep); err != nil {
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

// Image is an image in the runtime, with what the collector remembers of it. LastUsed is
// the time of the last use that is known, also from earlier runs of the agent; it is the
// time of the list if a container with the image runs, and zero if no use is known.
type Image struct {
	runtime.Image
	// FirstSeen is the time when the collector has seen the image first, or when the runtime
	// has used it before that.
	FirstSeen time.Time
	// Kept means that [ImagePolicy].Keep names the image.
	Kept bool
}

// idleSince returns the time from which on the age of the image counts.
func (i *Image) idleSince() time.Time {
	if i.LastUsed.Before(i.FirstSeen) {
		return i.FirstSeen
	}
	return i.LastUsed
}

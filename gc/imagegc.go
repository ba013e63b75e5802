package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The times of an [ImageGC].
const (
	// firstImageCollection is the time until the first collection of a Run. After a reboot
	// the containers of pods are being made then, so that their images are in use.
	firstImageCollection = time.Minute
	// A file system may free the space of files a while after their removal. settleTime is
	// waited for it before further images are removed, and settlePeriod is the time between
	// two looks.
	settleTime, settlePeriod = 2 * time.Second, 100 * time.Millisecond
)

// maxImageFailures is the number of failed removals after which a collection gives up: on
// a read-only file system all fail.
const maxImageFailures = 10

// Reasons of events about the node. They are those of kubelet.
const (
	reasonImageGCFailed       = "ImageGCFailed"
	reasonFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	reasonInvalidDiskCapacity = "InvalidDiskCapacity"
	reasonInvalidImageID      = "InvalidImageID"
)

// ImageOptions are the settings of an [ImageGC]; the zero value is valid.
type ImageOptions struct {
	ImagePolicy
	// Plan decides what is removed. Default: [PlanImages].
	Plan ImagePlanFunc
	// Period is the time from the end of a collection to the next one. Default 5 minutes,
	// kubelet's ImageGCPeriod.
	Period time.Duration
	// StateFile is the file in which the times of use are kept for the next agent. It
	// belongs to this collector alone, and its directory must exist. "": they are not kept,
	// and every image counts as new when the agent starts, as in kubelet.
	StateFile string
	// Listed receives each list of the images of the runtime. It may keep the list. If it is not nil, images are listed
	// also while the policy is disabled, and when Run begins. nil: none.
	Listed func(list runtime.ImageList)
	// Observer receives events about the node, ImageGCFailed, FreeDiskSpaceFailed, InvalidDiskCapacity and
	// InvalidImageID, and each [ImageCollection].
	runtime.Observer
}

// ImageGC is the default [ImageCollector]. Make one with [NewImageGC].
type ImageGC struct {
	rt              runtime.ImageService
	opts            ImageOptions
	log             logr.Logger
	waitForObserver func()

	started atomic.Bool
	// busy holds a value while one of the methods works; it guards records.
	busy chan struct{}
	// records are nil until the file was read.
	records *imageRecords
	kept    kept
}

// NewImageGC returns a collector for the images of the runtime, or an error with
// all that is wrong with the options. It does no I/O.
func NewImageGC(rt runtime.ImageService, opts ImageOptions) (*ImageGC, error) {
	observer, wait := opts.Queued()
	opts.Observer = observer
	if rt == nil {
		return nil, errors.New("gc: an ImageService is required")
	}
	policy, err := opts.complete()
	if err != nil {
		return nil, fmt.Errorf("gc: image policy: %w", err)
	}
	opts.ImagePolicy = policy
	keep, err := newKept(opts.Keep)
	if err != nil {
		return nil, err
	}
	if opts.Plan == nil {
		opts.Plan = PlanImages
	}
	if opts.Period <= 0 {
		opts.Period = 5 * time.Minute
	}
	return &ImageGC{rt: rt, opts: opts, log: opts.Logger, waitForObserver: wait,
		busy: make(chan struct{}, 1), kept: keep}, nil
}

// Run implements [ImageCollector]. The first collection comes after a minute, or after the
// period if that is shorter. The first failure is logged; if the next collection fails too,
// there is an event ImageGCFailed about the node. Run removes nothing if the policy is
// disabled, or if the runtime has no images.
func (c *ImageGC) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("gc: images: %w", runtime.ErrAlreadyRunning)
	}
	defer c.waitForObserver()
	if c.opts.Disabled() && c.opts.Listed == nil {
		c.log.V(2).Info("Garbage collection of images is disabled")
		<-ctx.Done()
		return nil
	}
	next := time.NewTimer(min(firstImageCollection, c.opts.Period))
	defer next.Stop()
	if c.opts.Listed != nil {
		if err := runtime.Recover(func() error { return c.listOnly(ctx) }); err != nil {
			c.log.V(1).Info("Images cannot be listed yet", "reason", err.Error()) // the first collection lists them
		}
	}
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		err := c.GarbageCollect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errors.ErrUnsupported):
			c.log.Info("The runtime has no images that could be removed; garbage collection of images ends",
				"reason", err.Error())
			<-ctx.Done()
			return nil
		case err != nil && !failed:
			c.log.Error(err, "Garbage collection of images has failed once")
		case err != nil:
			c.log.Error(err, "Garbage collection of images has failed several times in a row")
			c.event(reasonImageGCFailed, err.Error())
		}
		failed = err != nil
		next.Reset(c.opts.Period)
	}
}

// listOnly passes a list of the images on. Nothing follows from it for the times of use: after a reboot no containers
// are there yet.
func (c *ImageGC) listOnly(ctx context.Context) error {
	list, err := c.rt.ListImages(ctx)
	if err != nil {
		return err
	}
	c.opts.Listed(list)
	return nil
}

// GarbageCollect implements [ImageCollector]. If another collection is under way, it comes
// after that one. If the space cannot be freed, there is an event FreeDiskSpaceFailed about
// the node.
func (c *ImageGC) GarbageCollect(ctx context.Context) error {
	return c.collect(ctx, ImagesToThresholds)
}

// DeleteUnusedImages implements [ImageCollector]. Images that are younger than MinAge stay,
// as in kubelet.
func (c *ImageGC) DeleteUnusedImages(ctx context.Context) error {
	return c.collect(ctx, AllUnusedImages)
}

// Preview implements [ImageCollector]. Images of the preview are in no order.
func (c *ImageGC) Preview(ctx context.Context, goal ImageGoal) (ImagePreview, error) {
	var p ImagePreview
	err := c.alone(ctx, func() error {
		_, in, err := c.look(ctx, goal)
		if err != nil {
			return err
		}
		if in.Fs, err = c.usage(ctx); err != nil && goal != AllUnusedImages {
			return err
		}
		p = ImagePreview{Input: in, Plan: c.opts.Plan(in)}
		return nil
	})
	return p, err
}

// alone calls f when no other call works.
func (c *ImageGC) alone(ctx context.Context, f func() error) error {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for another collection of images: %w", ctx.Err())
	}
	defer func() { <-c.busy }()
	return runtime.Recover(f)
}

// collect makes one collection and reports it.
func (c *ImageGC) collect(ctx context.Context, goal ImageGoal) error {
	return c.alone(ctx, func() error {
		done := ImageCollection{Began: time.Now()}
		done.Err = runtime.Recover(func() error { return c.run(ctx, goal, &done) })
		done.Ended = time.Now()
		c.opts.Measure.Emit(done)
		return done.Err
	})
}

// look lists the images and brings the records up to date.
func (c *ImageGC) look(ctx context.Context, goal ImageGoal) (runtime.Mark, ImageInput, error) {
	if c.records == nil {
		var err error
		if c.records, err = readImageRecords(c.opts.StateFile); err != nil {
			c.log.Error(err, "The times of use of images cannot be read; all images count as new")
		}
	}
	list, err := c.rt.ListImages(ctx)
	if err != nil {
		return 0, ImageInput{}, fmt.Errorf("listing images: %w", err)
	}
	if c.opts.Listed != nil {
		c.opts.Listed(list)
	}
	now := time.Now()
	in := ImageInput{Images: c.records.observe(list.Images, now), Policy: c.opts.ImagePolicy, Now: now, Goal: goal}
	for i := range in.Images {
		in.Images[i].Kept = c.kept.has(&in.Images[i].Image)
	}
	c.keep()
	return list.Mark, in, nil
}

// keep writes the records. What fails is tried again with the next change or list.
func (c *ImageGC) keep() {
	if err := c.records.write(c.opts.StateFile); err != nil {
		c.log.Error(err, "The times of use of images cannot be written; if the agent ends now, they are lost")
	}
}

// usage returns the usage of the file system of images.
func (c *ImageGC) usage(ctx context.Context) (runtime.FsUsage, error) {
	info, err := c.rt.ImageFsInfo(ctx)
	if err != nil {
		return runtime.FsUsage{}, fmt.Errorf("measuring the file system of images: %w", err)
	}
	if info.Images.CapacityBytes <= 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		c.event(reasonInvalidDiskCapacity, err.Error())
		return runtime.FsUsage{}, err
	}
	info.Images.AvailableBytes = min(info.Images.AvailableBytes, info.Images.CapacityBytes)
	return info.Images, nil
}

// imageRun is one collection.
type imageRun struct {
	*ImageGC
	in     ImageInput
	listed runtime.Mark
	done   *ImageCollection
	// left has the images that may still be removed, by their ID. Those that were removed,
	// and those that could not be, are not in it.
	left map[string]*Image
	// target is the number of bytes that are to be available; 0 if none are to be freed.
	target int64
	errs   []error
}

func (c *ImageGC) run(ctx context.Context, goal ImageGoal, done *ImageCollection) error {
	listed, in, err := c.look(ctx, goal)
	if err != nil {
		return err
	}
	in.Images = slices.DeleteFunc(in.Images, func(i Image) bool {
		if i.ID == "" && !i.Pinned && len(i.UsedBy) == 0 {
			c.event(reasonInvalidImageID, "ImageID is not valid, skipping, image: "+i.Name())
		}
		return i.ID == ""
	})
	r := &imageRun{ImageGC: c, in: in, listed: listed, done: done, left: make(map[string]*Image, len(in.Images))}
	for i := range in.Images {
		r.left[in.Images[i].ID] = &in.Images[i]
	}
	var noUsage error // images that are too old are removed all the same
	r.in.Fs, noUsage = c.usage(ctx)
	before := r.in.Fs
	for progress := true; progress && ctx.Err() == nil; {
		progress = r.round(ctx)
	}
	c.keep()
	if ctx.Err() != nil {
		return fmt.Errorf("collecting images: %w", ctx.Err())
	}
	done.Freed = max(0, r.in.Fs.AvailableBytes-before.AvailableBytes)
	done.Failed = len(r.errs)
	failed := r.errs
	if len(failed) > 3 { // on a read-only file system all are the same
		failed = append(failed[:3:3], fmt.Errorf("and %d more", len(failed)-3))
	}
	switch missing := r.target - r.in.Fs.AvailableBytes; {
	case len(r.errs) > 0 && r.target > 0:
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			r.target-before.AvailableBytes, done.Freed, errors.Join(failed...))
	case len(r.errs) > 0:
		return fmt.Errorf("removing images: %w", errors.Join(failed...))
	case noUsage != nil && goal != AllUnusedImages:
		return noUsage
	case r.target > 0 && missing > 0:
		was := r.in
		was.Fs = before
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			was.UsagePercent(), formatSize(before.CapacityBytes), done.Freed)
		c.event(reasonFreeDiskSpaceFailed, message)
		return errors.New(message)
	}
	return nil
}

// round makes a plan and carries it out. It reports whether another one is due: images
// were removed or refused, and the space is not what the plan has assumed.
func (r *imageRun) round(ctx context.Context) (another bool) {
	before := len(r.left)
	if before < len(r.in.Images) {
		r.in.Images = slices.DeleteFunc(slices.Clone(r.in.Images), func(i Image) bool { return r.left[i.ID] == nil })
	}
	plan := r.opts.Plan(r.in)
	old := len(plan.Remove) > 0 && plan.Remove[0].Reason == ImageForAge // the space is judged without them
	if plan.Free > 0 && r.target == 0 && !old {
		r.target, r.in.Goal = r.in.Fs.AvailableBytes+plan.Free, ImagesToLowThreshold
		r.log.Info("The file system of images is over the high threshold; images are removed",
			"usagePercent", r.in.UsagePercent(),
			"highThreshold", r.in.Policy.HighThresholdPercent, "lowThreshold", r.in.Policy.LowThresholdPercent,
			"bytesToFree", plan.Free)
	}
	var aged, removed bool
	for _, removal := range plan.Remove {
		if ctx.Err() != nil || len(r.errs) >= maxImageFailures {
			return false
		}
		forSpace := removal.Reason == ImageForSpace && r.in.Goal != AllUnusedImages
		if forSpace && (aged || r.reached()) {
			break
		}
		if r.remove(ctx, removal) {
			removed, aged = true, aged || removal.Reason == ImageForAge
			r.measure(ctx)
		}
	}
	if removed && !aged && r.target > 0 {
		r.settle(ctx)
	}
	return len(r.left) < before && r.in.Goal != AllUnusedImages && !r.reached()
}

// reached reports whether the space that is to be available is available.
func (r *imageRun) reached() bool { return r.target > 0 && r.in.Fs.AvailableBytes >= r.target }

// measure updates the usage; what cannot be measured remains.
func (r *imageRun) measure(ctx context.Context) {
	if fs, err := r.usage(ctx); err == nil {
		r.in.Fs = fs
	}
}

// settle waits until the space is available, but not long.
func (r *imageRun) settle(ctx context.Context) {
	for waited := time.Duration(0); !r.reached() && waited < settleTime; waited += settlePeriod {
		t := time.NewTimer(settlePeriod)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		r.measure(ctx)
	}
}

// remove removes one image, and reports whether it is gone.
func (r *imageRun) remove(ctx context.Context, removal ImageRemoval) bool {
	image := r.left[removal.ID]
	if image == nil {
		r.errs = append(r.errs, fmt.Errorf("image %s: the plan has it, but it does not exist or was removed",
			removal.ID))
		return false
	}
	delete(r.left, removal.ID)
	if image.Pinned || image.Kept || len(image.UsedBy) > 0 {
		r.errs = append(r.errs, fmt.Errorf("image %s is %s; a plan must not remove it", image.Name(),
			image.KeptBy(r.in.Policy, r.in.Now)))
		return false
	}
	err := r.rt.RemoveImage(ctx, image.ID, r.listed)
	switch {
	case errors.Is(err, runtime.ErrImageInUse):
		r.log.V(2).Info("An image came into use and is not removed", "image", image.Name(), "imageID", image.ID)
		return false
	case err != nil:
		r.errs = append(r.errs, fmt.Errorf("removing image %s (%s): %w", image.Name(), image.ID, err))
		return false
	}
	r.log.Info("Removed an image", "image", image.Name(), "imageID", image.ID, "size", image.Size,
		"reason", removal.Reason, "lastUsed", image.LastUsed)
	r.records.drop(image.ID)
	if removal.Reason == ImageForAge {
		r.done.ForAge++
	} else {
		r.done.ForSpace++
	}
	return true
}

// event emits a warning about the node.
func (c *ImageGC) event(reason, message string) {
	err := runtime.Recover(func() error {
		c.opts.Event.Emit(runtime.Event{Type: v1.EventTypeWarning, Reason: reason, Message: message,
			Logged: reason == reasonImageGCFailed})
		return nil
	})
	if err != nil {
		c.log.Error(err, "Callback has panicked", "callback", "ImageOptions.Event", "reason", reason)
	}
}

// formatSize returns a size with one digit after the point, as kubelet writes it.
func formatSize(bytes int64) string {
	const units = "KMGT"
	size, unit := float64(bytes), -1
	for size >= 1024 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

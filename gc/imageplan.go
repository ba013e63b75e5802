package gc

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ImagePlanFunc decides which images are removed. It is a pure function: it does no I/O,
// does not change its input, and returns only images that are in it. It is never called
// twice at once.
//
// An image that is pinned, kept or in use is not removed, also if the plan has it; it is an
// error of the collection.
type ImagePlanFunc func(ImageInput) ImagePlan

// ImageGoal is what a collection is to reach.
type ImageGoal string

// The goals of a collection.
const (
	// ImagesToThresholds removes images for space if the high threshold is reached.
	ImagesToThresholds ImageGoal = ""
	// ImagesToLowThreshold goes on until the low threshold is reached: the collection has
	// begun at the high one, and has removed images since.
	ImagesToLowThreshold ImageGoal = "low"
	// AllUnusedImages removes all images that nothing keeps.
	AllUnusedImages ImageGoal = "all"
)

// ImageInput is the state that a plan is made from.
type ImageInput struct {
	// Images are the images in the runtime. They must not be changed.
	Images []Image
	// Fs is the file system with the images, measured after the last removal. If its
	// capacity is 0, it is not known, and nothing can be decided about space.
	Fs runtime.FsUsage
	// Policy is that of the Options with the defaults filled in: a field that is 0 is 0.
	Policy ImagePolicy
	// Now is the time of the collection.
	Now time.Time
	// Goal is what the collection is to reach.
	Goal ImageGoal
}

// UsagePercent returns the usage of the file system in percent of its size, rounded up as
// in kubelet. It is 0 if the size is not known.
func (in *ImageInput) UsagePercent() int {
	capacity, available := in.Fs.CapacityBytes, min(in.Fs.AvailableBytes, in.Fs.CapacityBytes)
	if capacity <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(max(0, available)), 100) // some file systems have 8 EiB
	free, _ := bits.Div64(high, low, uint64(capacity))
	return 100 - int(free)
}

// ImagePlan is a plan. The collector removes images in the order of Remove, and measures
// the file system after each. It stops when Free bytes more are available. If they are
// not at the end of the list, it makes another plan.
type ImagePlan struct {
	// Free is the number of bytes by which what is available is to grow, those of images
	// that are too old included. 0 means that no image is removed for space, except with the
	// goal [AllUnusedImages].
	Free int64
	// Remove are the images to remove. Those that are too old come first; the space is
	// measured again after them.
	Remove []ImageRemoval
}

// ImageRemoval is an image that is to be removed.
type ImageRemoval struct {
	Image
	Reason ImageReason
}

// ImageReason is the reason of the removal of an image, in the words of kubelet's metric.
type ImageReason string

// The reasons of removals.
const (
	// ImageForAge means that the image was not used for longer than MaxAge.
	ImageForAge ImageReason = "age"
	// ImageForSpace means that there is too little space.
	ImageForSpace ImageReason = "space"
)

// PlanImages is the default [ImagePlanFunc]. Candidates are images that are neither pinned,
// nor kept by the policy, nor in use. Those that were not used for longer than MaxAge come first. If the usage
// would still be at the high threshold without them, others follow until their sizes add
// up to what is missing to the low threshold, except images that are younger than MinAge.
//
// The image whose last use is longest ago comes first, one that was never used before all
// others, as in kubelet.
func PlanImages(in ImageInput) ImagePlan {
	candidates := make([]*Image, 0, len(in.Images))
	for i := range in.Images {
		if image := &in.Images[i]; !image.Pinned && !image.Kept && len(image.UsedBy) == 0 {
			candidates = append(candidates, image)
		}
	}
	slices.SortFunc(candidates, func(a, b *Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	var plan ImagePlan
	var rest []*Image
	old := int64(0) // the sizes of images that are too old
	for _, image := range candidates {
		if in.Policy.MaxAge > 0 && in.Now.Sub(image.idleSince()) > in.Policy.MaxAge {
			plan.Remove = append(plan.Remove, ImageRemoval{*image, ImageForAge})
			old += min(image.Size, math.MaxInt64-old) // sizes are from the runtime
		} else {
			rest = append(rest, image)
		}
	}
	plan.Free = in.missing(old)
	left := plan.Free - old
	for _, image := range rest {
		if in.Goal != AllUnusedImages && left <= 0 {
			break
		}
		if in.Now.Sub(image.FirstSeen) < in.Policy.MinAge {
			continue
		}
		plan.Remove = append(plan.Remove, ImageRemoval{*image, ImageForSpace})
		left -= image.Size
	}
	return plan
}

// missing returns the number of bytes to free if that many will be freed in any case.
func (in *ImageInput) missing(freed int64) int64 {
	without := *in
	without.Fs.AvailableBytes += min(freed, math.MaxInt64-max(0, without.Fs.AvailableBytes))
	switch {
	case in.Fs.CapacityBytes <= 0, in.Goal == AllUnusedImages:
		return 0
	case in.Goal == ImagesToThresholds && without.UsagePercent() < in.Policy.HighThresholdPercent:
		return 0
	case in.Policy.HighThresholdPercent == 100: // disabled, also for a file system that is full
		return 0
	}
	part := int64(100 - in.Policy.LowThresholdPercent)
	return max(0, in.Fs.CapacityBytes/100*part+in.Fs.CapacityBytes%100*part/100-in.Fs.AvailableBytes)
}

// KeptBy returns what keeps the image from being removed for space, in words, and "" if
// nothing does.
func (i *Image) KeptBy(policy ImagePolicy, now time.Time) string {
	switch {
	case i.Pinned:
		return "pinned"
	case i.Kept:
		return "kept by the policy"
	case len(i.UsedBy) > 0:
		return "used by " + describeUses(i.UsedBy)
	case now.Sub(i.FirstSeen) < policy.MinAge:
		return fmt.Sprintf("younger than %s", policy.MinAge)
	}
	return ""
}

// describeUses names the first use, a running container if there is one, and counts the
// others.
func describeUses(uses []runtime.ImageUse) string {
	first := uses[0]
	if i := slices.IndexFunc(uses,
		func(u runtime.ImageUse) bool { return u.State == runtime.ContainerRunning }); i >= 0 {
		first = uses[i]
	}
	text := fmt.Sprintf("%s container %s", first.State, first.Container)
	if first.Pod.UID != "" {
		text += " of pod " + first.Pod.String()
	}
	if first.Container == "" {
		text = fmt.Sprintf("pod %s, which starts", first.Pod)
	}
	if more := len(uses) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

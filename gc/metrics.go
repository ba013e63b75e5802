package gc

import (
	"time"
)

// Metrics receives the measurements of a [ContainerGC] and an [ImageGC]. Its methods are
// called one at a time by each, and nothing waits for them. Embed [NopMetrics] in an implementation, so that a method
// which is added later does not break it. kubelet has no metrics for its collector of dead containers.
type Metrics interface {
	// Collected reports a collection of containers that has ended.
	Collected(Collection)
	// ImagesCollected reports a collection of images that has ended.
	ImagesCollected(ImageCollection)
}

// NopMetrics discards all measurements.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Collected implements [Metrics].
func (NopMetrics) Collected(Collection) {}

// ImagesCollected implements [Metrics].
func (NopMetrics) ImagesCollected(ImageCollection) {}

// Collection describes a collection that has ended.
type Collection struct {
	Began, Ended time.Time
	// Containers, Sandboxes and LogDirs count what was removed.
	Containers, Sandboxes, LogDirs int
	// Failed counts what could not be removed.
	Failed int
	// Err joins all errors; nil if everything in the plan was removed.
	Err error
}

// ImageCollection describes a collection of images that has ended.
type ImageCollection struct {
	Began, Ended time.Time
	// ForAge and ForSpace count the images that were removed, by reason.
	ForAge, ForSpace int
	// Freed is the number of bytes by which the space that is available has grown.
	Freed int64
	// Failed counts the images that could not be removed.
	Failed int
	// Err is the error of the collection.
	Err error
}

package gc

import (
	"time"
)

// Collection is the measurement of a collection of containers that has ended. kubelet has no metrics of it.
type Collection struct {
	Began, Ended time.Time
	// Containers, Sandboxes and LogDirs count what was removed.
	Containers, Sandboxes, LogDirs int
	// Failed counts what could not be removed.
	Failed int
	// Err joins all errors; nil if everything in the plan was removed.
	Err error
}

// ImageCollection is the measurement of a collection of images that has ended.
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

// IsMeasurement implements [runtime.Measurement].
func (Collection) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ImageCollection) IsMeasurement() {}

package images

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Pull is the measurement of an image that was pulled for a request. kubelet_image_pull_duration_seconds is Took by
// Size.
type Pull struct {
	Pod runtime.PodRef
	// Image as the spec names it.
	Image string
	// Size in bytes, as the runtime reports it.
	Size int64
	// Took is the duration of the pull, with all credentials that were tried. Waited is the time before it, for the end
	// of other pulls.
	Took, Waited time.Duration
	// Shared means that another request has begun the pull.
	Shared bool
}

// Ensured is the measurement of an answered request: kubelet_image_manager_ensure_image_requests_total by its fields.
type Ensured struct {
	Policy v1.PullPolicy
	// Present is whether the image was present before, nil if that was not asked. Pulled is whether a pull was
	// required, nil if that is not known because of an error.
	Present, Pulled *bool
}

// Recorded is the measurement of the numbers of intents and records of pulls, when they may have changed:
// kubelet_imagemanager_ondisk_pullintents and kubelet_imagemanager_ondisk_pulledrecords.
type Recorded struct{ Intents, Records int }

// Verified is the measurement of the decision whether a pod may use an image that is present:
// kubelet_imagemanager_image_mustpull_checks_total.
type Verified struct{ Decision records.Decision }

// IsMeasurement implements [runtime.Measurement].
func (Pull) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Ensured) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Recorded) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Verified) IsMeasurement() {}

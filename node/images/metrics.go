package images

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Metrics receives the measurements of a [Puller]. Its methods are called one at a time, and nothing waits for them.
// Embed [NopMetrics] in an implementation, so that a method which is added later does not break it.
type Metrics interface {
	// Pulled reports an image that was pulled. kubelet_image_pull_duration_seconds is Took by Size.
	Pulled(Pull)
	// Ensured reports an answered request: kubelet_image_manager_ensure_image_requests_total by its fields.
	Ensured(Ensured)
	// Verified reports the decision whether a pod may use an image that is present:
	// kubelet_imagemanager_image_mustpull_checks_total.
	Verified(records.Decision)
	// Recorded reports how many intents and records of pulls there are, when that may have changed:
	// kubelet_imagemanager_ondisk_pullintents and kubelet_imagemanager_ondisk_pulledrecords.
	Recorded(intents, records int)
}

// NopMetrics discards all measurements.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Pulled implements [Metrics].
func (NopMetrics) Pulled(Pull) {}

// Ensured implements [Metrics].
func (NopMetrics) Ensured(Ensured) {}

// Verified implements [Metrics].
func (NopMetrics) Verified(records.Decision) {}

// Recorded implements [Metrics].
func (NopMetrics) Recorded(intents, records int) {}

// Pull describes an image that was pulled for a request.
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

// Ensured describes an answered request.
type Ensured struct {
	Policy v1.PullPolicy
	// Present is whether the image was present before, nil if that was not asked. Pulled is whether a pull was
	// required, nil if that is not known because of an error.
	Present, Pulled *bool
}

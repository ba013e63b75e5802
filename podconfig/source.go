package podconfig

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Source delivers the pods of one origin: a directory of manifests, a URL, an API
// server, an embedder's own control plane. [MapPods] wraps one.
type Source interface {
	// Name identifies the source in its [Mux], as in "file", "http" or "api". It must
	// not change. It becomes the pods' annotation kubernetes.io/config.source; pods of
	// all names but "api" are static pods.
	Name() string
	// Run delivers the pods of the source to the sink until ctx ends. Calls of Run do not
	// overlap.
	//
	// If Run returns an error before ctx ends, it is called again after a back-off. The
	// pods stay meanwhile. Each run calls Set as soon as it has all pods, because the
	// runs before may have missed changes. If Run returns nil after it has called Set,
	// the source is complete: its pods stay, and Run is not called again. If Run returns
	// nil without having called Set, it has failed.
	Run(ctx context.Context, sink Sink) error
}

// RestoreDelayer is a [Source] whose restored pods may run elsewhere by now, because its control plane can move them
// while the agent is away. Most sources are none.
type RestoreDelayer interface {
	Source
	// RestoreAfter returns a channel that is closed when the restored pods are to be desired. If the source delivers
	// its first snapshot before, they are not. nil: they are desired at once. [Sink].Restored returns them in any case.
	// It is called once, before Run.
	RestoreAfter() <-chan struct{}
}

// Sink receives the pods of a [Source]. Its methods do not wait for the reader of the
// stream. They are safe for concurrent use, and have no effect after Run has returned.
// Slices and pods that are passed must not be changed afterwards.
type Sink interface {
	// Set delivers a snapshot: the full list of the pods of the source. An empty list
	// means that the source has no pods. Before the first Set its pods are not known.
	// The [Mux] sets the defaults of the pods on copies, and rejects a pod that is not valid.
	//
	// A pod that has not changed is best passed by the same pointer as before, because
	// it is not compared then.
	Set(pods []*v1.Pod)
	// Apply delivers a change of single pods. The cost is proportional to the number of
	// pods in the delta, and does not depend on the number of pods of the source. Apply
	// may be called before Set, but only Set makes the source seen.
	Apply(delta Delta)
	// Reject reports that the source cannot deliver a pod, because of the error: its manifest
	// is not valid, or another pod has its name. A zero pod means that the pod is not known,
	// as with a manifest that does not parse. A source calls it once while the error lasts.
	// The [Mux] logs it, and treats the pod like one that it rejects itself.
	Reject(pod runtime.PodRef, err error)
	// Warn reports that the source delivers a pod although something in its manifest is ignored, such as an unknown
	// field. A source calls it once while that lasts. The [Mux] logs it, and emits a warning with the reason
	// ManifestWarning.
	Warn(pod runtime.PodRef, err error)
	// Restored returns the pods of the source that [Options].Restore has returned. It returns
	// nil once the source has delivered a snapshot, and if the source was added to a running
	// [Mux]. It is for a source whose first snapshot may be incomplete, for example because a
	// manifest cannot be read at the moment: to keep a restored pod, the source includes it in
	// its snapshot, by the same pointer. The pods must not be changed.
	Restored() []*v1.Pod
	// StaticUID returns the UID under which a static pod runs, as [Options].StaticUID decides it; by
	// default the UID of pod.Pod. A source of manifests calls it once for each manifest without
	// metadata.uid. It may wait for the runtime until ctx ends; then the result means nothing.
	StaticUID(ctx context.Context, pod StaticPod) types.UID
	// NodeName returns [Options].NodeName: the node that the pods run on. It may be empty.
	NodeName() string
}

// StaticPod is a static pod whose manifest has no metadata.uid. Another agent, or another version of
// this one, derives another UID from the same manifest.
type StaticPod struct {
	// Source is the name of the source. The [Mux] sets it.
	Source string
	// Pod is the pod, complete and valid, with the UID that was derived from its manifest. It must
	// not be changed.
	Pod *v1.Pod
	// Manifest identifies the content of the manifest and its origin. It does not depend on the version
	// of this module.
	Manifest string
	// Modified is the time of the last change of the manifest. It is zero if that is not known.
	Modified time.Time
}

// SinkBase is a [Sink] that discards everything, to be embedded by implementations, so that
// methods added later do not break them. Most wrap a Sink and embed that.
type SinkBase struct{}

var _ Sink = SinkBase{}

// Set implements [Sink].
func (SinkBase) Set([]*v1.Pod) {}

// Apply implements [Sink].
func (SinkBase) Apply(Delta) {}

// Reject implements [Sink].
func (SinkBase) Reject(runtime.PodRef, error) {}

// Warn implements [Sink].
func (SinkBase) Warn(runtime.PodRef, error) {}

// Restored implements [Sink].
func (SinkBase) Restored() []*v1.Pod { return nil }

// StaticUID implements [Sink]: it returns the UID of pod.Pod.
func (SinkBase) StaticUID(_ context.Context, pod StaticPod) types.UID { return pod.Pod.UID }

// NodeName implements [Sink].
func (SinkBase) NodeName() string { return "" }

// Delta is a change of single pods of a source. All of it is one atomic step, so that
// a full name can pass from one UID to another.
type Delta struct {
	// Update has the pods to add, or to replace by UID. A graceful deletion is an update
	// with a deletion timestamp. Nil pods are ignored. If a UID occurs more than once, the
	// last one counts. A pod takes its full name from any other pod of the source, as if that
	// was in Remove: the source need not know the UID that it replaces.
	Update []*v1.Pod
	// Remove has the UIDs of the pods to remove. Unknown UIDs and those in Update are
	// ignored.
	Remove []types.UID
}

// renamed reports whether an update gives the pod another name than that of next.
func renamed(update, next *v1.Pod) bool {
	return update != nil && fullNameOf(update) != fullNameOf(next)
}

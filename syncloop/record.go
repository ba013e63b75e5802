package syncloop

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// record records a decision about a desired pod.
func (h *PodHandler) record(pod *v1.Pod, r runtime.Record) {
	if h.opts.Record == nil {
		return
	}
	r.Pod, r.Stage = runtime.RefOf(pod), runtime.StageDecided
	r.Source = runtime.RecordSource(pod.Annotations[podspec.AnnotationConfigSource])
	h.opts.Record(r)
}

// recordUpdate records which fields of a pod an update has changed.
func (h *PodHandler) recordUpdate(old, pod *v1.Pod) {
	if h.opts.Record == nil {
		return
	}
	r := runtime.Record{Kind: runtime.KindUpdate, Message: strings.Join(changes(old, pod), ", ")}
	if !h.opts.RecreateUpdated || !mayRecreate(pod) {
		r.Error = strings.Join(notApplied(old, pod), ", ")
	}
	h.record(pod, r)
}

// recordEnd records that a pod is gone.
func (h *PodHandler) recordEnd(ref runtime.PodRef) {
	h.opts.Record.Emit(runtime.Record{Pod: ref, Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
}

// changes returns the paths of the fields in which two versions of a pod differ, as in
// "spec.containers{main}.image". Of metadata it compares what users set and deletion.
func changes(old, updated *v1.Pod) []string {
	paths := differences("metadata", &metadata{old.Labels, old.Annotations, old.DeletionTimestamp,
		old.DeletionGracePeriodSeconds},
		&metadata{updated.Labels, updated.Annotations, updated.DeletionTimestamp, updated.DeletionGracePeriodSeconds},
		nil)
	paths = append(paths, differences("spec", &old.Spec, &updated.Spec, []string{"InitContainers", "Containers",
		"EphemeralContainers"})...)
	before := map[string]*v1.Container{}
	for kind, c := range podspec.Containers(&old.Spec) {
		before[containerPath(kind, c)] = c
	}
	for kind, c := range podspec.Containers(&updated.Spec) {
		path := containerPath(kind, c)
		if was := before[path]; was != nil {
			paths = append(paths, differences(path, was, c, nil)...)
		} else {
			paths = append(paths, path)
		}
		delete(before, path)
	}
	for kind, c := range podspec.Containers(&old.Spec) {
		if path := containerPath(kind, c); before[path] != nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// metadata has the fields of the metadata of a pod that changes compares.
type metadata struct {
	Labels                     map[string]string `json:"labels"`
	Annotations                map[string]string `json:"annotations"`
	DeletionTimestamp          *metav1.Time      `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds"`
}

// containerPath returns the path of a container in a spec, as in "spec.containers{main}".
func containerPath(kind podspec.ContainerKind, c *v1.Container) string {
	switch kind {
	case podspec.InitContainer:
		return "spec.initContainers{" + c.Name + "}"
	case podspec.EphemeralContainer:
		return "spec.ephemeralContainers{" + c.Name + "}"
	default:
		return "spec.containers{" + c.Name + "}"
	}
}

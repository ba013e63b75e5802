package podconfig

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/podconfig/internal/podvalidation"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// entry sets the defaults of the pods of all sources and validates them. It is not safe for
// concurrent use.
type entry struct {
	nodeName string
	comparer comparer
}

// accepted is a pod of a source with its defaults.
type accepted struct {
	pod  *v1.Pod
	spec *acceptedSpec
}

// acceptedSpec is a valid spec. It is the same for all pods of an offer whose specs are equal.
type acceptedSpec struct {
	// defaulted is the spec with its defaults. It is nil if the pods of the source have them.
	defaulted *v1.PodSpec
}

// of returns the pod, which has this spec, as it is offered.
func (s *acceptedSpec) of(pod *v1.Pod) accepted {
	if s.defaulted != nil {
		copied := *pod
		copied.Spec = *s.defaulted
		pod = &copied
	}
	return accepted{podvalidation.InSeconds(pod), s}
}

// refusal is a pod that was not accepted.
type refusal struct {
	pod *v1.Pod
	err error
}

// accept sets the defaults of a pod and validates it, unless it is as it was delivered last. refused are the pods of
// the source that were not accepted, o is the offer of the UID or nil.
func (r *registration) accept(o *offer, pod *v1.Pod, refused map[types.UID]refusal) (accepted, error) {
	e := r.entry
	before, known := refused[pod.UID]
	switch {
	case known && (before.pod == pod || e.same(before.pod, pod, r.isAPI())):
		r.refuse(pod, before.err)
		return accepted{}, before.err
	case o == nil || o.given != pod && !e.same(o.given, pod, r.isAPI()):
	case !known && (o.given == pod || !r.isAPI() && sameDeletion(o.given, pod)):
		return accepted{o.pod, o.spec}, nil // nothing of it has changed
	default:
		return o.spec.of(pod), nil
	}
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		err := fmt.Errorf("pod %s of source %q has no name, no namespace or no UID", runtime.RefOf(pod), r.name)
		r.refuse(pod, err)
		return accepted{}, err
	}
	checked, errs := podvalidation.Accept(pod, e.nodeName, r.isAPI())
	if len(errs) > 0 {
		after := ""
		if o != nil {
			after = "; it stays as it was"
		}
		err := fmt.Errorf("pod %s of source %q is not valid: %w%s", text.Clip(runtime.RefOf(pod).String(),
			text.MaxMessage), r.name, text.JoinErrors(errs), after)
		r.refuse(pod, err)
		return accepted{}, err
	}
	spec := &acceptedSpec{defaulted: &checked.Spec}
	if e.comparer.sameMessage(&checked.Spec, &pod.Spec) {
		spec.defaulted = nil // so that the spec is in memory once
	}
	return spec.of(pod), nil
}

// refuse notes that the pod was not accepted.
func (r *registration) refuse(pod *v1.Pod, err error) {
	if pod.UID == "" {
		return
	}
	if r.refused == nil {
		r.refused = map[types.UID]refusal{}
	}
	r.refused[pod.UID] = refusal{pod, err}
}

// isAPI reports whether the source is an API server.
func (r *registration) isAPI() bool { return r.name == podspec.SourceAPI }

// end takes over the deletion of a pod from an update that was not accepted: a pod that runs can end.
func (r *registration) end(c *offers, o *offer, update *v1.Pod) {
	if update.DeletionTimestamp == nil || sameDeletion(update, o.pod) {
		return
	}
	ended := *o.pod
	ended.DeletionTimestamp, ended.DeletionGracePeriodSeconds = update.DeletionTimestamp,
		update.DeletionGracePeriodSeconds
	c.offer(o, podvalidation.InSeconds(&ended))
}

// same reports whether two pods of a source have all in common that is validated. Unless they are of an API server,
// they have also the same status.
func (e *entry) same(a, b *v1.Pod, api bool) bool {
	if api {
		return fullNameOf(a) == fullNameOf(b) && e.comparer.sameMessage(&a.Spec, &b.Spec)
	}
	return sameObjectMeta(&a.ObjectMeta, &b.ObjectMeta) && e.comparer.sameMessage(&a.Spec, &b.Spec) &&
		e.comparer.sameMessage(&a.Status, &b.Status)
}

func sameObjectMeta(a, b *metav1.ObjectMeta) bool {
	if lists(a)+lists(b) > 0 {
		return equality.Semantic.DeepEqual(a, b)
	}
	return a.Name == b.Name && a.Namespace == b.Namespace && a.GenerateName == b.GenerateName &&
		a.Generation == b.Generation &&
		//lint:ignore SA1019 a field that a source may set is compared
		a.ResourceVersion == b.ResourceVersion && a.SelfLink == b.SelfLink &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

func lists(m *metav1.ObjectMeta) int {
	return len(m.OwnerReferences) + len(m.Finalizers) + len(m.ManagedFields)
}

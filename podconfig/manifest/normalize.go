package manifest

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/podconfig/internal/podvalidation"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Normalize makes a pod, as its author wrote it, a static pod of one node. It changes the
// pod in place, as kubelet does:
//
//   - Defaults are set, see [SetDefaults].
//   - A pod without metadata.uid gets the UID that a kubelet of [Options.KubeletVersion] derives: a hash of the pod,
//     the origin and, with [SourceFile], the node. So a pod with other content is another pod.
//   - The name of the node, in lower case, is appended to the name. The default
//     namespace is "default". The node name is set.
//   - The annotation kubernetes.io/config.source is set to [Options.Source],
//     kubernetes.io/config.hash to the UID.
//   - Pods from files get a toleration of all NoExecute taints.
//   - The status is reset to phase Pending.
//
// deletionGracePeriodSeconds stays, and is the grace period of the pod in the place of
// terminationGracePeriodSeconds. A pod with a deletionTimestamp is one that is being deleted: it is stopped, and does
// not start. An API server would remove both.
//
// It returns an error if the pod has no name or the options no node name.
func Normalize(pod *v1.Pod, opts Options) error {
	if opts.NodeName == "" {
		return errors.New("normalize a pod: no node name given")
	}
	if opts.Source == "" {
		opts.Source = SourceFile
	}
	if pod.Name == "" {
		return field.Required(field.NewPath("metadata", "name"), "static pods need a name")
	}
	podvalidation.SetContainerDefaults(pod)
	if minorOf(opts.KubeletVersion) < 37 {
		podvalidation.SetResourceDefaults(pod) // since 1.37, that is done by API servers only
	}
	if pod.UID == "" {
		pod.UID = derivedUID(pod, opts)
	}
	podvalidation.SetResourceDefaults(pod)
	pod.Name += "-" + strings.ToLower(opts.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = opts.NodeName
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[podspec.AnnotationConfigSource] = opts.Source
	pod.Annotations[podspec.AnnotationConfigHash] = string(pod.UID)
	if opts.Source == SourceFile {
		tolerateNoExecute(&pod.Spec)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	return nil
}

// tolerateNoExecute keeps static pods on a node that is tainted because of a problem.
func tolerateNoExecute(spec *v1.PodSpec) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	i := slices.IndexFunc(spec.Tolerations, func(t v1.Toleration) bool { return t.MatchToleration(&all) })
	if i < 0 {
		spec.Tolerations = append(spec.Tolerations, all)
	} else {
		spec.Tolerations[i] = all // without a time limit
	}
}

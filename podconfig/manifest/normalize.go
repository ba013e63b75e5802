package manifest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Normalize makes a pod, as its author wrote it, a static pod of one node. It changes the
// pod in place, as kubelet does:
//
//   - A pod without metadata.uid gets a UID: the hexadecimal 128 bit FNV-1a hash over
//     content, origin and, with [SourceFile], the node. So a pod with other content is
//     another pod. Kubelet hashes the memory layout of its own types, so its UIDs differ.
//   - The name of the node, in lower case, is appended to the name. The default
//     namespace is "default". The node name is set.
//   - The annotation kubernetes.io/config.source is set to [Options.Source],
//     kubernetes.io/config.hash to the UID.
//   - Pods from files get a toleration of all NoExecute taints.
//   - The status is reset to phase Pending.
//   - Defaults are set, see [SetDefaults].
//
// deletionGracePeriodSeconds stays, and is the grace period of the pod in the place of
// terminationGracePeriodSeconds. A pod with a deletionTimestamp is one that is being deleted: it is stopped, and does
// not start. An API server would remove both.
//
// It returns an error if the pod has no name or the options no node name.
func Normalize(pod *v1.Pod, opts Options) error { return normalize(pod, nil, opts) }

// normalize is Normalize for a pod with the content, see Item. If content is nil, it is
// the JSON of the pod without its status.
func normalize(pod *v1.Pod, content []byte, opts Options) error {
	if opts.NodeName == "" {
		return errors.New("normalize a pod: no node name given")
	}
	if opts.Source == "" {
		opts.Source = SourceFile
	}
	if pod.Name == "" {
		return field.Required(field.NewPath("metadata", "name"), "static pods need a name")
	}
	if pod.UID == "" {
		uid, err := contentUID(pod, content, opts)
		if err != nil {
			return err
		}
		pod.UID = uid
	}
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
	SetDefaults(pod)
	return nil
}

// contentUID derives a UID from the content and the origin of the pod.
func contentUID(pod *v1.Pod, content []byte, opts Options) (types.UID, error) {
	if content == nil {
		desired := *pod
		desired.Status = v1.PodStatus{}
		var err error
		if content, err = json.Marshal(&desired); err != nil {
			return "", fmt.Errorf("hash pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	h := fnv.New128a()
	_, _ = h.Write(content)
	if opts.Source == SourceFile {
		_, _ = io.WriteString(h, "host:"+opts.NodeName+"file:"+opts.Origin)
	} else {
		_, _ = io.WriteString(h, "url:"+opts.Origin)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil))), nil
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

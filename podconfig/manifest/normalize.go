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

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Normalize turns a pod as its author wrote it into a static pod of this node, in
// place, as kubelet does:
//
//   - without metadata.uid, the UID is the hex of a 128 bit FNV-1a hash over
//     content, node and origin, so that another content is another pod. Kubelet
//     hashes the memory layout of its own types here; the two agree on everything
//     but the value;
//   - the lower case name of the node is appended to the name, the namespace
//     defaults to "default", the node name is set;
//   - annotations kubernetes.io/config.source and config.hash, the latter being
//     the UID;
//   - pods from files tolerate every NoExecute taint;
//   - the status is dropped but for the phase Pending, and so is a deletion
//     timestamp, as the API server drops it from a pod that is created;
//   - the API's defaults are filled in, see [SetDefaults].
func Normalize(pod *v1.Pod, opts Options) error { return normalize(pod, nil, opts) }

// normalize is Normalize for a pod of which the content was decoded; nil stands for
// the JSON of the pod, less its status.
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
	pod.Annotations[runtime.AnnotationConfigSource] = opts.Source
	pod.Annotations[runtime.AnnotationConfigHash] = string(pod.UID)
	if opts.Source == SourceFile {
		tolerateNoExecute(&pod.Spec)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	SetDefaults(pod)
	return nil
}

// contentUID derives a UID from what the pod says and where it says it.
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

// tolerateNoExecute keeps static pods on a node that has problems.
func tolerateNoExecute(spec *v1.PodSpec) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	i := slices.IndexFunc(spec.Tolerations, func(t v1.Toleration) bool { return t.MatchToleration(&all) })
	if i < 0 {
		spec.Tolerations = append(spec.Tolerations, all)
	} else {
		spec.Tolerations[i] = all // without a limit in time
	}
}

// Load is what a source of manifests does with the bytes that it finds: [Decode],
// [Normalize] and [Validate]. All pods are good or none is returned; the error
// then names the document and the field, and wraps an [InvalidError] where a pod
// was understood and found wanting.
func Load(data []byte, opts Options) ([]*v1.Pod, error) {
	pods, _, err := LoadAll(data, opts)
	return pods, err
}

// LoadAll is [Load] for a source that reads secrets and config maps too, as
// [Options.Kinds] has it: they pass through [NormalizeObject] and
// [ValidateObject].
func LoadAll(data []byte, opts Options) (pods []*v1.Pod, found []metav1.Object, err error) {
	items, err := Decode(data, opts)
	if err != nil {
		return nil, nil, err
	}
	pods = make([]*v1.Pod, 0, len(items))
	for _, m := range items {
		if m.Object != nil {
			found = append(found, m.Object)
			err = m.loadObject()
		} else {
			pods = append(pods, m.Pod)
			err = m.loadPod(opts)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s%w", m.place, err)
		}
	}
	return pods, found, nil
}

func (m *Item) loadPod(opts Options) error {
	if err := normalize(m.Pod, m.content, opts); err != nil {
		if e := (*field.Error)(nil); errors.As(err, &e) && m.path != nil {
			e.Field = m.path.String() + "." + e.Field
		}
		return err
	}
	if errs := validate(m.Pod, m.path, opts); len(errs) > 0 {
		return &InvalidError{Pod: runtime.RefOf(m.Pod), Errs: errs}
	}
	return nil
}

func (m *Item) loadObject() error {
	NormalizeObject(m.Object)
	if errs := validateObject(m.Object, m.path); len(errs) > 0 {
		return fmt.Errorf("%s is invalid: %w", clip(objects.RefOf(m.Object).String()), joinShort(errs))
	}
	return nil
}

// InvalidError says what is wrong with a pod.
type InvalidError struct {
	Pod  runtime.PodRef
	Errs field.ErrorList
}

// Error returns the problems as kubectl prints them, the first ones if there are
// many.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("pod %s/%s is invalid: %v", clip(e.Pod.Namespace), clip(e.Pod.Name), joinShort(e.Errs))
}

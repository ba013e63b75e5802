package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Load decodes, normalizes and validates a manifest: it calls [Decode], and [Normalize]
// and [Validate] for each pod. It returns all pods or an error. The error names the
// document and the field. It wraps an [InvalidError] if a pod was decoded and is not
// valid.
func Load(data []byte, opts Options) ([]*v1.Pod, error) {
	pods, _, err := LoadAll(data, opts)
	return pods, err
}

// LoadAll is like [Load], and also returns the secrets and config maps that
// [Options.Kinds] accepts. It calls [NormalizeObject] and [ValidateObject] for each.
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
	derived := m.Pod.UID == ""
	if err := Normalize(m.Pod, opts); err != nil {
		if e := (*field.Error)(nil); errors.As(err, &e) && m.path != nil {
			e.Field = m.path.String() + "." + e.Field
		}
		return err
	}
	if errs := validate(m.Pod, m.path, opts); len(errs) > 0 {
		return &InvalidError{Pod: runtime.RefOf(m.Pod), Errs: errs}
	}
	if derived && opts.UID != nil {
		m.Pod.UID = opts.UID(m.Pod, m.hash(opts))
		m.Pod.Annotations[podspec.AnnotationConfigHash] = string(m.Pod.UID)
	}
	return nil
}

// hash identifies what UIDs are derived from. It must never change: records on disk have it.
func (m *Item) hash(opts Options) string {
	h := sha256.New()
	for _, part := range []string{opts.Source, opts.NodeName, opts.Origin} {
		_, _ = fmt.Fprintf(h, "%q\n", part)
	}
	_, _ = h.Write(m.content)
	return hex.EncodeToString(h.Sum(nil))
}

func (m *Item) loadObject() error {
	NormalizeObject(m.Object)
	if errs := validateObject(m.Object, m.path); len(errs) > 0 {
		return fmt.Errorf("%s is invalid: %w", short(objects.RefOf(m.Object).String()), joinShort(errs))
	}
	return nil
}

// Warning is the error of a manifest that a source uses although it ignores some of it, see [Options.Warn].
type Warning struct{ Err error }

// Error returns what is ignored.
func (w *Warning) Error() string { return w.Err.Error() }

// Unwrap returns w.Err.
func (w *Warning) Unwrap() error { return w.Err }

// InvalidError is the error of a pod that is not valid.
type InvalidError struct {
	Pod runtime.PodRef
	// Errs are all problems of the pod.
	Errs field.ErrorList
}

// Error returns the problems in the form that kubectl prints. It omits some if there are
// more than 10.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("pod %s/%s is invalid: %v", short(e.Pod.Namespace), short(e.Pod.Name), joinShort(e.Errs))
}

package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// lookupTimeout is the time limit of lookups that are made only for the records.
const lookupTimeout = 10 * time.Second

// Objects returns a source that wraps inner, and keeps records of the secrets and config
// maps that kept pods refer to. Lookups return the object of a record until inner's Watch
// has made its first report, and whenever inner fails with an error other than NotFound.
// Call it once, before [Dir.Run].
func (s *Dir) Objects(inner objects.Source) objects.Source {
	o := &keptObjects{store: s, inner: inner}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = o
	return o
}

// keptObjects is a source with records for when inner cannot be reached.
type keptObjects struct {
	store *Dir
	inner objects.Source

	mu sync.Mutex
	// ready is set after the first report of inner: its lookups can be answered.
	ready bool
}

// Secret implements [objects.Source].
func (o *keptObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return lookup(ctx, o, objects.Ref{Kind: objects.SecretKind, Namespace: namespace, Name: name}, o.inner.Secret)
}

// ConfigMap implements [objects.Source].
func (o *keptObjects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return lookup(ctx, o, objects.Ref{Kind: objects.ConfigMapKind, Namespace: namespace, Name: name}, o.inner.ConfigMap)
}

func lookup[T metav1.Object](ctx context.Context, o *keptObjects, ref objects.Ref,
	find func(ctx context.Context, namespace, name string) (T, error)) (T, error) {
	o.mu.Lock()
	ready := o.ready
	o.mu.Unlock()
	if !ready {
		if object, ok := o.store.object(ref).(T); ok {
			return object, nil
		}
	}
	object, err := find(ctx, ref.Namespace, ref.Name)
	switch {
	case err == nil:
		o.store.keepObject(ref, object)
	case apierrors.IsNotFound(err):
		if ready {
			o.store.keepObject(ref, nil)
		}
	default:
		if kept, ok := o.store.object(ref).(T); ok {
			return kept, nil
		}
	}
	return object, err
}

// Watch implements [objects.Source].
func (o *keptObjects) Watch(ctx context.Context, changed func(refs []objects.Ref)) error {
	return o.inner.Watch(ctx, func(refs []objects.Ref) {
		o.mu.Lock()
		o.ready = true
		o.mu.Unlock()
		o.store.refresh(refs)
		changed(refs)
	})
}

// object returns the object of the record, or nil.
func (s *Dir) object(ref objects.Ref) metav1.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[ref]
}

// keepObject keeps a record of the object if a kept pod refers to it. A nil object does
// not exist, so its record is removed.
func (s *Dir) keepObject(ref objects.Ref, object metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.held[ref]
	switch {
	case object == nil && was != nil:
		delete(s.held, ref)
		s.set(fileOf(ref), nil)
	case object != nil && was != object && s.references[ref] > 0:
		s.held[ref] = object
		s.set(fileOf(ref), recordOf(object))
	}
}

// refresh makes Run look up the objects that kept pods refer to: those of refs, or all
// if refs is empty.
func (s *Dir) refresh(refs []objects.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(refs) == 0 {
		refs = slices.Collect(maps.Keys(s.references))
	}
	for _, ref := range refs {
		s.stale[ref] = struct{}{}
	}
	s.dirty.Notify()
}

// renew looks up the stale objects, which updates their records. Those that are left
// after lookupTimeout stay stale.
func (s *Dir) renew(ctx context.Context) {
	s.mu.Lock()
	source := s.source
	var refs []objects.Ref
	if source != nil {
		for ref := range s.stale {
			if s.references[ref] > 0 {
				refs = append(refs, ref)
			}
		}
	}
	clear(s.stale)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for i, ref := range refs {
		if ctx.Err() != nil {
			s.mu.Lock()
			for _, ref := range refs[i:] {
				s.stale[ref] = struct{}{}
			}
			s.mu.Unlock()
			return
		}
		var err error
		if ref.Kind == objects.SecretKind {
			_, err = source.Secret(ctx, ref.Namespace, ref.Name)
		} else {
			_, err = source.ConfigMap(ctx, ref.Namespace, ref.Name)
		}
		if err != nil {
			// The status of the pods that refer to it has the reason.
			s.log.V(2).Info("An object that a pod refers to has no checkpoint", "object", ref, "err", err)
		}
	}
}

// dropObjects drops the records of objects that no kept pod refers to. mu is held.
func (s *Dir) dropObjects() {
	s.unreferenced = false
	for ref := range s.held {
		if s.references[ref] == 0 {
			delete(s.held, ref)
			s.set(fileOf(ref), nil)
		}
	}
}

// objectRecord is the content of the record of an object.
type objectRecord struct {
	Secret    *v1.Secret    `json:"secret,omitempty"`
	ConfigMap *v1.ConfigMap `json:"configMap,omitempty"`
}

func recordOf(object metav1.Object) objectRecord {
	var r objectRecord
	r.Secret, _ = object.(*v1.Secret)
	r.ConfigMap, _ = object.(*v1.ConfigMap)
	return r
}

func (r objectRecord) object() metav1.Object {
	switch {
	case r.Secret != nil && r.ConfigMap == nil:
		return r.Secret
	case r.ConfigMap != nil && r.Secret == nil:
		return r.ConfigMap
	default:
		return nil
	}
}

// fileOf returns the file of an object. Its name is a hash: the object's full name may be
// too long for a file name.
func fileOf(ref objects.Ref) file {
	return file{object: true, name: fmt.Sprintf("%x", sha256.Sum256([]byte(ref.String())))}
}

// isHash reports whether the name of a record is that of an object.
func isHash(name string) bool {
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == sha256.Size
}

// loadObject reads the record of an object into held. mu is held.
func (s *Dir) loadObject(name string, record []byte) error {
	data, err := unpack(name, record, s.key)
	if err != nil && s.key != nil && !errors.Is(err, errPlain) && mayBeReadable(record[:min(len(record), maxHeader)]) {
		err = fmt.Errorf("%w: %w", errPlain, err) // it is not set aside, where its secret could be read
	}
	if err != nil {
		return err
	}
	var r objectRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	object := r.object()
	if object == nil {
		return errForeign
	}
	ref := objects.RefOf(object)
	if f := fileOf(ref); f.name != name {
		return fmt.Errorf("%w of that name: it holds %s", errForeign, ref)
	}
	if errs := manifest.ValidateObject(object); len(errs) > 0 {
		return fmt.Errorf("%s in it is not valid: %w", ref, errs.ToAggregate())
	}
	s.held[ref] = object
	s.onDisk[file{object: true, name: name}] = sha256.Sum256(data)
	return nil
}

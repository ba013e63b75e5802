package objects

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNotSet is returned by lookups in a [Store] before the first call of [Store.Set].
var ErrNotSet = errors.New("secrets and config maps have not been read yet")

// firstSetTimeout is how long a lookup waits for the first Set. Kubelet waits as long
// for the first answer about an object.
const firstSetTimeout = time.Second

// Store is a [Source] that holds objects in memory. Its methods are safe for concurrent
// use.
type Store struct {
	// ready is closed by the first Set.
	ready chan struct{}

	mu       sync.RWMutex
	objects  map[Ref]metav1.Object // nil until the first Set
	watchers Watchers
}

var _ Source = (*Store)(nil)

// New returns a Store without objects. Lookups fail with [ErrNotSet] until [Store.Set]
// is called.
func New() *Store {
	return &Store{ready: make(chan struct{})}
}

// Set replaces all objects of the Store. The objects must not be changed afterwards.
// Values that are not a *v1.Secret or a *v1.ConfigMap are ignored. Of objects with the
// same kind, namespace and name, the first counts.
//
// Passing an object again by the same pointer is the cheap way to leave it unchanged.
// Set does not validate: check objects from untrusted origins with
// manifest.ValidateObject.
func (s *Store) Set(objects ...metav1.Object) {
	next := make(map[Ref]metav1.Object, len(objects))
	for _, o := range objects {
		ref := RefOf(o)
		if _, twice := next[ref]; ref.Kind != "" && !twice {
			next[ref] = o
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.objects == nil
	changed := diff(s.objects, next)
	s.objects = next
	if first {
		close(s.ready)
		s.watchers.Ready()
		return
	}
	s.watchers.Changed(changed...)
}

// diff returns the objects that differ.
func diff(before, after map[Ref]metav1.Object) []Ref {
	var refs []Ref
	for ref, o := range after {
		if was, ok := before[ref]; !ok || was != o && !reflect.DeepEqual(was, o) {
			refs = append(refs, ref)
		}
	}
	for ref := range before {
		if _, ok := after[ref]; !ok {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Secret returns the secret. The error is a NotFound error of apimachinery, [ErrNotSet],
// or the cause of ctx's end.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	o, err := s.lookup(ctx, Ref{Kind: SecretKind, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.Secret), nil
}

// ConfigMap returns the config map. The errors are those of [Store.Secret].
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	o, err := s.lookup(ctx, Ref{Kind: ConfigMapKind, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.ConfigMap), nil
}

func (s *Store) lookup(ctx context.Context, ref Ref) (metav1.Object, error) {
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[ref]
	if !ok {
		// The message is that of kubelet: secret "x" not found.
		return nil, apierrors.NewNotFound(v1.Resource(strings.ToLower(ref.Kind)), ref.Name)
	}
	return o, nil
}

// await waits for the first Set.
func (s *Store) await(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
	}
	timer := time.NewTimer(firstSetTimeout)
	defer timer.Stop()
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return ErrNotSet
	}
}

// Watch implements [Source]. It returns nil when ctx ends. Several calls may run at the
// same time.
func (s *Store) Watch(ctx context.Context, changed func(refs []Ref)) error {
	return s.watchers.Watch(ctx, changed)
}

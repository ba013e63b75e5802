package objects

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNotSet says that there was no [Store.Set] yet.
var ErrNotSet = errors.New("secrets and config maps have not been read yet")

// patience is how long a lookup waits for the first Set: as long as kubelet waits
// for the first answer about an object.
const patience = time.Second

// Store holds objects in memory.
type Store struct {
	// ready is closed by the first Set.
	ready chan struct{}

	mu       sync.RWMutex
	objects  map[Ref]metav1.Object // nil before the first Set
	watchers map[*watcher]struct{}
}

var _ Source = (*Store)(nil)

// New returns a Store that was not Set yet.
func New() *Store {
	return &Store{ready: make(chan struct{}), watchers: map[*watcher]struct{}{}}
}

// Set replaces all that the Store holds. The objects are *v1.Secret and
// *v1.ConfigMap, which must not be changed any more; others are passed over, and of
// two with the same kind, namespace and name the first counts. An object that did
// not change is best given again by the same pointer. Objects that come from
// outside should have passed manifest.ValidateObject.
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
	}
	for w := range s.watchers {
		w.add(first, changed)
	}
}

// diff returns what differs between the two.
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

// Secret returns the secret, an error of apimachinery's NotFound kind, [ErrNotSet],
// or the error of ctx.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	o, err := s.lookup(ctx, Ref{Kind: SecretKind, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.Secret), nil
}

// ConfigMap is for config maps what [Store.Secret] is for secrets.
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
		// The message is the one that kubelet's users know: secret "x" not found.
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
	timer := time.NewTimer(patience)
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

// Watch is that of Source; it returns nil when ctx has ended. There
// may be several watchers.
func (s *Store) Watch(ctx context.Context, changed func(refs []Ref)) error {
	w := &watcher{wake: make(chan struct{}, 1), refs: map[Ref]struct{}{}}
	s.mu.Lock()
	s.watchers[w] = struct{}{}
	if s.objects != nil {
		w.add(true, nil)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			if all, refs := w.take(); all {
				changed(nil)
			} else if len(refs) > 0 {
				changed(refs)
			}
		}
	}
}

// watcher gathers what one call of Watch has to tell.
type watcher struct {
	// wake has a token whenever there is something to tell.
	wake chan struct{}

	mu   sync.Mutex
	all  bool
	refs map[Ref]struct{}
}

func (w *watcher) add(all bool, refs []Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || all
	for _, ref := range refs {
		w.refs[ref] = struct{}{}
	}
	select {
	case w.wake <- struct{}{}:
	default: // there is a token already
	}
}

func (w *watcher) take() (all bool, refs []Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, refs = w.all, slices.Collect(maps.Keys(w.refs))
	w.all = false
	clear(w.refs)
	return all, refs
}

package objectcache

import (
	"context"
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// item is a referenced object. The mutex of the cache guards it.
type item struct {
	ref objects.Ref
	// pods is the number of pods that refer to it.
	pods int
	// since is the time of the first reference.
	since time.Time
	// stop ends the watch; nil before it has started.
	stop context.CancelFunc
	// read is closed by the first answer of the API server.
	read chan struct{}
	// object is nil if it does not exist, or if it has not been read.
	object metav1.Object
	// err is the error of the latest request. An answer resets it.
	err error
	// missed is set after a lookup has failed because the object was not read.
	missed bool
}

// known reports whether the API server has answered.
func (it *item) known() bool {
	select {
	case <-it.read:
		return true
	default:
		return false
	}
}

// patience returns how long a lookup waits for the first read. After a failure it waits only
// in the first second of the item: an API server may grant the node the permission for an
// object a moment after it has bound the pod.
func (it *item) patience(now time.Time) time.Duration {
	if it.err != nil {
		return it.since.Add(firstReadTimeout).Sub(now)
	}
	return firstReadTimeout
}

// await waits for the first read, for the duration at most. The mutex is not held.
func (it *item) await(ctx context.Context, d time.Duration) error {
	if it.known() {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-it.read:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// unread returns the error of a lookup of an object that was not read. It never is NotFound.
func (it *item) unread(node string) error {
	switch {
	case it.err == nil:
		return fmt.Errorf("%s: %w", it.ref, ErrNotRead)
	case apierrors.IsForbidden(it.err):
		return fmt.Errorf("node %s is not permitted to list and watch %s: %w", node, it.ref, it.err)
	case apierrors.IsNotFound(it.err): // of the namespace or the resource, not of the object
		return fmt.Errorf("%s: %w: %s", it.ref, ErrNotRead, it.err.Error())
	default:
		return fmt.Errorf("%s: %w: %w", it.ref, ErrNotRead, it.err)
	}
}

// watch keeps the item up to date until ctx ends.
func (c *Cache) watch(ctx context.Context, it *item) {
	r := listwatch.Resource{
		Name: it.ref.String(), Client: c.client, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField,
			it.ref.Name).String(),
		Failed: func(err error, first bool) { c.failed(it, err, first) },
	}
	if core := c.client.CoreV1(); it.ref.Kind == objects.SecretKind {
		r.Type, r.API = &v1.Secret{}, listwatch.Of(core.Secrets(it.ref.Namespace))
	} else {
		r.Type, r.API = &v1.ConfigMap{}, listwatch.Of(core.ConfigMaps(it.ref.Namespace))
	}
	listwatch.Run(ctx, r, &store{c, it})
}

// failed takes the error of a request.
func (c *Cache) failed(it *item, err error, first bool) {
	c.mu.Lock()
	known := it.known()
	it.err = err
	c.mu.Unlock()
	if first && !known {
		c.log.Error(err, "An object that pods refer to cannot be read from the API server; it is tried again",
			"object", it.ref)
	} else {
		c.log.V(2).Info("Watch of an object failed; it is started again", "object", it.ref, "known", known, "err", err)
	}
}

// answer takes what the API server has answered: the object, or nil if it does not exist.
func (c *Cache) answer(it *item, object metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[it.ref] != it {
		return // no pod refers to it any more
	}
	first := !it.known()
	changed := !sameData(it.object, object)
	it.object, it.err = object, nil
	if first {
		close(it.read)
		changed = it.missed
	}
	if isImmutable(object) {
		it.stop()
	}
	switch {
	case !c.answered:
		c.answered = true
		c.watchers.Ready()
	case changed:
		c.watchers.Changed(it.ref)
	}
}

// isImmutable reports whether the data of the object never changes.
func isImmutable(object metav1.Object) bool {
	var immutable *bool
	switch o := object.(type) {
	case *v1.Secret:
		immutable = o.Immutable
	case *v1.ConfigMap:
		immutable = o.Immutable
	}
	return immutable != nil && *immutable
}

// sameData reports whether pods see no difference between two states of an object.
func sameData(a, b metav1.Object) bool {
	switch a := a.(type) {
	case *v1.Secret:
		b, ok := b.(*v1.Secret)
		return ok && a.UID == b.UID && a.Type == b.Type && reflect.DeepEqual(a.Data, b.Data)
	case *v1.ConfigMap:
		b, ok := b.(*v1.ConfigMap)
		return ok && a.UID == b.UID && reflect.DeepEqual(a.Data, b.Data) &&
			reflect.DeepEqual(a.BinaryData, b.BinaryData)
	default:
		return a == nil && b == nil
	}
}

// store receives what the reflector reads of one item. It implements cache.ReflectorStore,
// whose methods are called one at a time.
type store struct {
	cache *Cache
	item  *item
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	if own := s.own(object); own != nil {
		s.cache.answer(s.item, own)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	if s.own(object) != nil {
		s.cache.answer(s.item, nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	var found metav1.Object
	for _, object := range list {
		if own := s.own(object); own != nil {
			found = own
		}
	}
	s.cache.answer(s.item, found)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// own returns a copy of the object without its managed fields. It is nil if the item is for another
// object: a server may ignore the field selector.
func (s *store) own(object any) metav1.Object {
	var o metav1.Object
	switch object := object.(type) {
	case *v1.Secret:
		c := *object
		o = &c
	case *v1.ConfigMap:
		c := *object
		o = &c
	default:
		return nil
	}
	if objects.RefOf(o) != s.item.ref {
		return nil
	}
	o.SetManagedFields(nil)
	return o
}

package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// keptTimeout is the deadline of the read of an object that is kept: a server that hangs delays a pod for less.
	keptTimeout = 5 * time.Second
	// saveDelay is how long changes are collected before they are kept.
	saveDelay = time.Second
	// maxKept is the number of objects of a kind that are kept, of up to maxKeptSize bytes of JSON. Both together are
	// less than a record of a checkpoint may have: one that is larger is not written.
	maxKept     = 512
	maxKeptSize = 24 << 10
)

// kept has the objects of one kind for times without the API server. They are shared and not changed.
type kept[T metav1.Object] struct {
	state  string         // the name in the checkpoint
	states runtime.States // nil: there is no checkpoint
	load   sync.Once
	// dirty holds a token while there is something to save.
	dirty flow.Signal

	mu      sync.Mutex
	entries map[string]*entry[T] // by namespace/name
}

// entry is a kept object. Only its fields change; the mutex of kept guards them.
type entry[T metav1.Object] struct {
	object T
	// read is when the API server has last delivered it; zero if that was an earlier agent's.
	read time.Time
	// refused means that the API server has refused the latest read.
	refused bool
}

func newKept[T metav1.Object](state string, states runtime.States) *kept[T] {
	return &kept[T]{state: state, states: states, dirty: flow.NewSignal(), entries: map[string]*entry[T]{}}
}

// run reads what an earlier agent has kept, and saves changes until ctx ends.
func (k *kept[T]) run(ctx context.Context) {
	k.load.Do(k.restore)
	if k.states != nil {
		flow.Saver{Dirty: k.dirty, Wait: saveDelay, Save: k.save}.Run(ctx)
	}
}

func (k *kept[T]) save() error {
	k.mu.Lock()
	list := make([]T, 0, len(k.entries))
	for _, key := range slices.Sorted(maps.Keys(k.entries)) {
		list = append(list, k.entries[key].object)
	}
	k.mu.Unlock()
	if len(list) == 0 {
		k.states.KeepState(k.state, nil)
	} else {
		k.states.KeepState(k.state, list)
	}
	return nil
}

// restore reads what an earlier agent has kept.
func (k *kept[T]) restore() {
	var list []*T
	if k.states == nil || !k.states.LoadState(k.state, &list) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, object := range list {
		if object != nil && (*object).GetName() != "" && len(k.entries) < maxKept {
			k.entries[path.Join((*object).GetNamespace(), (*object).GetName())] = &entry[T]{object: *object}
		}
	}
}

// get returns a kept object.
func (k *kept[T]) get(key string) (object T, ok bool) {
	k.load.Do(k.restore)
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[key]; e != nil {
		return e.object, true
	}
	return object, false
}

// put keeps an object as the API server has delivered it.
func (k *kept[T]) put(key string, object T) {
	k.load.Do(k.restore)
	fits := func() bool {
		data, err := json.Marshal(object)
		return err == nil && len(data) <= maxKeptSize
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.entries[key]
	switch {
	case !fits || old == nil && len(k.entries) >= maxKept:
		k.remove(key)
		return
	case old == nil || old.object.GetUID() != object.GetUID() ||
		old.object.GetResourceVersion() != object.GetResourceVersion():
		k.dirty.Notify()
	}
	k.entries[key] = &entry[T]{object: object, read: time.Now()}
}

// drop removes an object.
func (k *kept[T]) drop(key string) {
	k.load.Do(k.restore)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(key)
}

// remove is drop while mu is held.
func (k *kept[T]) remove(key string) {
	if _, ok := k.entries[key]; ok {
		delete(k.entries, key)
		k.dirty.Notify()
	}
}

// refuse notes that the API server has refused a read, and reports whether it has refused the one before, too.
func (k *kept[T]) refuse(key string) (twice bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[key]
	if e == nil {
		return false
	}
	twice, e.refused = e.refused, true
	return twice
}

// readBefore returns the keys of the objects that were read before the time, in order.
func (k *kept[T]) readBefore(t time.Time) (keys []string) {
	k.load.Do(k.restore)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(k.entries)) {
		if k.entries[key].read.Before(t) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Attachment implements [csinode.Cluster]. An attachment that is not attached, or is being deleted, is not kept. The
// error is NotFound, the API server's, or that of a request without an answer if no attachment is kept.
func (s *Storage) Attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	object, err := read(ctx, s.attachments, name, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return s.client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	}, func(a *storagev1.VolumeAttachment) bool { return a.Status.Attached && a.DeletionTimestamp == nil })
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("VolumeAttachment %s: %w", name, err)
	}
	return object, err
}

// Forget implements [csinode.Cluster].
func (s *Storage) Forget(attachment string) {
	s.attachments.drop(attachment)
	s.recheck.Notify()
}

// Secret implements [csinode.Cluster]. The error is NotFound, the API server's, or that of a request without an answer
// if the secret is not kept.
func (s *Storage) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	secret, err := s.readSecret(ctx, namespace, name)
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
	}
	return secret, err
}

func (s *Storage) readSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return read(ctx, s.secrets, path.Join(namespace, name), func(ctx context.Context) (*v1.Secret, error) {
		return s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}, func(*v1.Secret) bool { return true })
}

// read returns an object as the API server has it, which is kept if keep returns true for it, and dropped otherwise.
// Without an answer it returns the object that is kept. The error is NotFound only if there is no such object.
func read[T metav1.Object](ctx context.Context, objects *kept[T], key string, get func(context.Context) (T, error),
	keep func(T) bool) (none T, err error) {
	held, ok := objects.get(key)
	timeout := requestTimeout
	if ok {
		timeout = keptTimeout
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	object, err := get(call)
	switch {
	case err == nil:
		object.SetManagedFields(nil)
		if keep(object) {
			objects.put(key, object)
		} else {
			objects.drop(key)
		}
		return object, nil
	case missing(err):
		objects.drop(key)
		return none, err
	case ok && noAnswer(ctx, err):
		return held, nil
	default:
		return none, unknown(err)
	}
}

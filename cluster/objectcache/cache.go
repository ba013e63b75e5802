package objectcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

var (
	// ErrNotRead is returned by lookups of objects that the API server has not answered for.
	ErrNotRead = errors.New("it has not been read from the API server yet")
	errTooMany = fmt.Errorf("a pod refers to more than %d secrets and config maps", podspec.MaxReferences)
	// ErrNotReferenced is returned by lookups of objects that no pod of the API server on this
	// node refers to.
	ErrNotReferenced = errors.New("no pod that the API server has bound to this node refers to it")
)

// firstReadTimeout is how long a lookup waits for the first read of its object. Kubelet
// waits as long.
const firstReadTimeout = time.Second

// Options are the settings of a [Cache]. The zero value is valid.
type Options struct {
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Cache is an [objects.Source] of the objects that the pods of a node refer to. Its methods
// are safe for concurrent use.
type Cache struct {
	client   kubernetes.Interface
	nodeName string
	log      logr.Logger
	started  atomic.Bool
	watchers objects.Watchers
	// dirty holds one token while there may be items without a watch.
	dirty flow.Signal

	mu sync.Mutex
	// pods are the references of the pods that count.
	pods map[types.UID][]objects.Ref
	// items are the referenced objects.
	items map[objects.Ref]*item
	// barred are the references of the pods that have too many of them, see [podspec.BoundedReferences]. Those of
	// ephemeral containers are not watched, and if the others are too many, neither are these: no
	// agent runs such a pod.
	barred map[types.UID][]objects.Ref
	// answered is set after the first read of any object.
	answered bool
}

var _ objects.Source = (*Cache)(nil)

// New returns a Cache without objects. It does no I/O.
func New(client kubernetes.Interface, nodeName string, opts Options) (*Cache, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("the client is nil"))
	}
	if nodeName == "" {
		errs = append(errs, errors.New("the name of the node is empty"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("objectcache: %w", err)
	}
	return &Cache{
		client: client, nodeName: nodeName, log: opts.Logger, dirty: flow.NewSignal(),
		pods: map[types.UID][]objects.Ref{}, items: map[objects.Ref]*item{}, barred: map[types.UID][]objects.Ref{},
	}, nil
}

// Update takes changes of the pods of the API server: those that are new or have changed,
// and those that do not exist any more. It does not block.
func (c *Cache) Update(changed, removed []*v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range removed {
		delete(c.barred, pod.UID)
		c.refer(pod.UID, nil)
	}
	for _, pod := range changed {
		delete(c.barred, pod.UID)
		var refs []objects.Ref
		if counts(pod) {
			var all []objects.Ref
			var within bool
			if refs, all, within = podspec.BoundedReferences(pod, objects.References); !within {
				refs, all = nil, refs
			}
			if all != nil {
				c.barred[pod.UID] = all
			}
		}
		c.refer(pod.UID, refs)
	}
}

// counts reports whether the references of a pod count: it is no mirror pod, and may run.
func counts(pod *v1.Pod) bool {
	return !podspec.IsMirror(pod) && !podspec.IsPhaseTerminal(pod.Status.Phase)
}

// refer sets the references of a pod. mu is held.
func (c *Cache) refer(uid types.UID, refs []objects.Ref) {
	for _, ref := range refs {
		it := c.items[ref]
		if it == nil {
			it = &item{ref: ref, since: time.Now(), read: make(chan struct{})}
			c.items[ref] = it
			c.dirty.Notify()
		}
		it.pods++
	}
	// After the new references, so that the watch of an object in both lists goes on.
	for _, ref := range c.pods[uid] {
		it := c.items[ref]
		if it.pods--; it.pods == 0 {
			delete(c.items, ref)
			if it.stop != nil {
				it.stop()
			}
		}
	}
	if len(refs) == 0 {
		delete(c.pods, uid)
	} else {
		c.pods[uid] = refs
	}
}

// Run watches the referenced objects until ctx ends, and then returns nil. A second call
// returns an error that wraps [runtime.ErrAlreadyRunning].
func (c *Cache) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("objectcache: %w", runtime.ErrAlreadyRunning)
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for _, start := range c.unstarted(ctx) {
			watches.Go(start)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.dirty:
		}
	}
}

// unstarted returns functions that watch the items that have no watch yet.
func (c *Cache) unstarted(ctx context.Context) []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var starts []func()
	for _, it := range c.items {
		if it.stop == nil {
			watch, stop := context.WithCancel(ctx)
			it.stop = stop
			starts = append(starts, func() { defer stop(); c.watch(watch, it) })
		}
	}
	return starts
}

// Watch implements [objects.Source]. It returns nil when ctx ends.
func (c *Cache) Watch(ctx context.Context, changed func(refs []objects.Ref)) error {
	return c.watchers.Watch(ctx, changed)
}

// Secret returns the secret. The error is a NotFound error of apimachinery, wraps
// [ErrNotRead] or [ErrNotReferenced], is about a read that has failed, or is the cause of
// ctx's end.
func (c *Cache) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	o, err := c.lookup(ctx, objects.Ref{Kind: objects.SecretKind, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.Secret), nil
}

// ConfigMap returns the config map. The errors are those of [Cache.Secret].
func (c *Cache) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	o, err := c.lookup(ctx, objects.Ref{Kind: objects.ConfigMapKind, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return o.(*v1.ConfigMap), nil
}

// Refers reports whether a pod of the API server refers to the object.
func (c *Cache) Refers(ref objects.Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[ref] != nil || c.isBarred(ref)
}

// isBarred reports whether a pod with too many references refers to the object. mu is held.
func (c *Cache) isBarred(ref objects.Ref) bool {
	for _, refs := range c.barred {
		if slices.Contains(refs, ref) {
			return true
		}
	}
	return false
}

func (c *Cache) lookup(ctx context.Context, ref objects.Ref) (metav1.Object, error) {
	c.mu.Lock()
	it := c.items[ref]
	if it == nil {
		err := ErrNotReferenced
		if c.isBarred(ref) {
			err = errTooMany
		}
		c.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	patience := it.patience(time.Now())
	c.mu.Unlock()
	if err := it.await(ctx, patience); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !it.known():
		it.missed = true
		return nil, it.unread(c.nodeName)
	case it.object == nil:
		// The message is that of kubelet: secret "x" not found.
		return nil, apierrors.NewNotFound(v1.Resource(strings.ToLower(ref.Kind)), ref.Name)
	default:
		return it.object, nil
	}
}

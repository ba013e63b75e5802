package podsource

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Change is a difference between two states of the pods of the node.
type Change struct {
	// Changed has the pods that are new or have changed, in no order.
	Changed []*v1.Pod
	// Removed has the last known state of the pods that do not exist any more, or not under
	// this UID.
	Removed []*v1.Pod
	// Complete means that the change comes from a complete list, so that it also has what
	// the watch has missed. The first change is complete.
	Complete bool
}

// Options are the settings of a [Source]. The zero value is valid.
type Options struct {
	// Registered blocks until the node is registered. Before that, a list would be empty or
	// forbidden. If nil, the source does not wait.
	Registered func(ctx context.Context) error
	// Observers are called with each change, one change at a time and in order, when the lookups of
	// the source have it, and before the agent receives it. They must not block, and must not
	// change the pods.
	Observers []func(Change)
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Source is a [podconfig.Source] of the pods that an API server has bound to a node. All
// methods are safe for concurrent use.
type Source struct {
	client kubernetes.Interface
	node   string
	opts   Options

	mu     sync.RWMutex
	pods   *table
	synced bool
}

var _ podconfig.Source = (*Source)(nil)

// New returns a source of the pods of the node. Requests are made with the client in Run
// only.
func New(client kubernetes.Interface, nodeName string, opts Options) (*Source, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("podsource: a client is required"))
	}
	if nodeName == "" {
		errs = append(errs, errors.New("podsource: the name of the node is required"))
	}
	for i, o := range opts.Observers {
		if o == nil {
			errs = append(errs, fmt.Errorf("podsource: Options.Observers[%d] is nil", i))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Source{client: client, node: nodeName, opts: opts, pods: newTable()}, nil
}

// Name implements [podconfig.Source]. It returns [podspec.SourceAPI].
func (s *Source) Name() string { return podspec.SourceAPI }

// Run implements [podconfig.Source]. It returns an error only if Options.Registered does:
// failures of the server are logged and repeated until ctx ends.
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	if s.opts.Registered != nil {
		if err := s.opts.Registered(ctx); err != nil {
			return fmt.Errorf("podsource: waiting for node %q to be registered: %w", s.node, err)
		}
	}
	s.watch(ctx, &store{s, sink})
	return nil
}

// ByUID returns the pod with the UID as the watch last delivered it; mirror pods, too.
func (s *Source) ByUID(uid types.UID) (*v1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pod, ok := s.pods.byUID[uid]
	return pod, ok
}

// ByName returns the pod of the full name as the watch last delivered it; mirror pods, too.
func (s *Source) ByName(namespace, name string) (*v1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pod, ok := s.pods.byName[types.NamespacedName{Namespace: namespace, Name: name}]
	return pod, ok
}

// Pods returns all pods of the node, with mirror pods, in no order.
func (s *Source) Pods() []*v1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pods.pods(func(*v1.Pod) bool { return true })
}

// Synced reports whether there was a complete list. Before that, a pod that the lookups do
// not have may exist.
func (s *Source) Synced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// store receives what the reflector reads, and passes it on. It implements
// cache.ReflectorStore, whose methods are called one at a time.
type store struct {
	*Source
	sink podconfig.Sink
}

// change applies f to the table and passes its result on.
func (s *store) change(f func(t *table) Change) {
	s.mu.Lock()
	c := f(s.pods)
	s.synced = s.synced || c.Complete
	var snapshot []*v1.Pod
	if c.Complete {
		snapshot = s.pods.pods(func(pod *v1.Pod) bool { return !podspec.IsMirror(pod) })
	}
	s.mu.Unlock()
	if !c.Complete && len(c.Changed)+len(c.Removed) == 0 {
		return
	}
	for _, o := range s.opts.Observers {
		if err := runtime.Recover(func() error { o(c); return nil }); err != nil {
			s.opts.Logger.Error(err, "Callback has panicked", "callback", "Observers")
		}
	}
	if c.Complete {
		s.sink.Set(snapshot)
		return
	}
	var d podconfig.Delta
	for _, pod := range c.Changed {
		if !podspec.IsMirror(pod) {
			d.Update = append(d.Update, pod)
		}
	}
	for _, pod := range c.Removed {
		if !podspec.IsMirror(pod) {
			d.Remove = append(d.Remove, pod.UID)
		}
	}
	if len(d.Update)+len(d.Remove) > 0 {
		s.sink.Apply(d)
	}
}

// accept returns the object as a pod without what no part of the agent reads. It returns nil
// if it is no pod of the node.
func (s *store) accept(obj any) *v1.Pod {
	pod, ok := obj.(*v1.Pod)
	if !ok || pod.UID == "" {
		s.opts.Logger.Error(nil, "The API server has delivered something that is no pod",
			"type", fmt.Sprintf("%T", obj))
		return nil
	}
	if pod.Spec.NodeName != s.node {
		s.opts.Logger.Error(nil, "The API server has delivered a pod of another node", "pod", runtime.RefOf(pod),
			"node", pod.Spec.NodeName)
		return nil
	}
	pod.ManagedFields = nil
	return pod
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	if pod := s.accept(obj); pod != nil {
		s.change(func(t *table) Change { return t.set(pod) })
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	if pod, ok := obj.(*v1.Pod); ok {
		s.change(func(t *table) Change { return t.remove(pod) })
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, version string) error {
	pods := make([]*v1.Pod, 0, len(list))
	for _, obj := range list {
		if pod := s.accept(obj); pod != nil {
			pods = append(pods, pod)
		}
	}
	s.change(func(t *table) Change { return t.replace(pods, version) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

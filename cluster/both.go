package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// bothEvents returns a receiver that passes each event to both; second may be nil.
func bothEvents(first, second runtime.EventFunc) runtime.EventFunc {
	if second == nil {
		return first
	}
	return func(e runtime.Event) {
		first(e)
		second(e)
	}
}

// joinSinks returns a sink that delivers to both; other may be nil.
func joinSinks(api, other status.Sink) status.Sink {
	if other == nil {
		return api
	}
	return &sinks{api: api, other: other, pods: map[types.UID]delivered{}}
}

// sinks are two sinks. Each receives everything, also if the other one fails. A status is delivered
// again until both have accepted it, and when one of them requests it; other does not receive again what it has
// accepted and has not requested.
type sinks struct {
	api, other status.Sink

	mu sync.Mutex
	// pods has the pods that were delivered and are not gone.
	pods map[types.UID]delivered
}

// delivered is what other has of a pod.
type delivered struct {
	// accepted is the last status that it has accepted; nil if there is none.
	accepted *v1.PodStatus
	// requested means that it has requested the pod since the last delivery.
	requested bool
}

// Deliver implements [status.Sink]. That a pod is gone in the API is not passed on while the
// other sink has not accepted the status.
func (s *sinks) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) (status.Result, error) {
	var first status.Result
	var other error
	if !s.has(pod.UID, &st) {
		first, other = s.other.Deliver(ctx, pod, st)
		if first.Later == 0 && (other == nil || errors.Is(other, status.ErrGone)) {
			s.mu.Lock()
			if d, ok := s.pods[pod.UID]; ok {
				d.accepted = &st
				s.pods[pod.UID] = d
			}
			s.mu.Unlock()
		}
	}
	result, api := s.api.Deliver(ctx, pod, st)
	return status.Result{Later: flow.Soonest(result.Later, first.Later)}, firstUnlessGone(other, api)
}

// has reports whether other has accepted the status, and has not requested it since. It forgets what
// other does not have.
func (s *sinks) has(uid types.UID, st *v1.PodStatus) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.pods[uid]
	has := !d.requested && d.accepted != nil && equality.Semantic.DeepEqual(d.accepted, st)
	if !has {
		s.pods[uid] = delivered{}
	}
	return has
}

// WatchReceiver implements [status.Sink].
func (s *sinks) WatchReceiver(ctx context.Context, changed func(uid types.UID)) {
	var other sync.WaitGroup
	var panicked error
	defer func() {
		if other.Wait(); panicked != nil {
			panic(panicked) // in the manager's goroutine, which recovers it
		}
	}()
	other.Go(func() {
		panicked = runtime.Recover(func() error {
			s.other.WatchReceiver(ctx, func(uid types.UID) {
				s.mu.Lock()
				if d, ok := s.pods[uid]; ok { // otherwise it has nothing that it could request again
					d.requested = true
					s.pods[uid] = d
				}
				s.mu.Unlock()
				changed(uid)
			})
			return nil
		})
	})
	s.api.WatchReceiver(ctx, changed)
}

// PodFinished implements [status.Sink].
func (s *sinks) PodFinished(pod runtime.PodRef) {
	s.other.PodFinished(pod)
	s.api.PodFinished(pod)
}

// PodGone implements [status.Sink].
func (s *sinks) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	s.mu.Lock()
	delete(s.pods, pod.UID)
	s.mu.Unlock()
	other := s.other.PodGone(ctx, pod, last)
	return firstUnlessGone(other, s.api.PodGone(ctx, pod, last))
}

// firstUnlessGone returns an error that is repeated if one of the two is to be.
func firstUnlessGone(other, api error) error {
	if other != nil && !errors.Is(other, status.ErrGone) {
		return other
	}
	return api
}

// bothObjects returns a source of what pods of the API server and other pods refer to; local
// may be nil. references are those of the pods of the API server before api has them.
func bothObjects(api, local objects.Source, references *earlyReferences) objects.Source {
	if local == nil {
		return api
	}
	return &split{api: api, local: local, early: references}
}

// earlyReferences are the objects that the restored pods of the API server refer to. They count
// until its first complete list of pods. The methods are safe for concurrent use.
type earlyReferences struct {
	mu sync.Mutex
	// restored is set when refs are known, listed after the first complete list.
	restored, listed bool
	refs             map[objects.Ref]struct{}
}

// setRestored sets the restored pods. Without a checkpoint there are none.
func (e *earlyReferences) setRestored(pods []*v1.Pod) {
	refs := map[objects.Ref]struct{}{}
	for _, pod := range pods {
		for _, ref := range objects.References(pod) {
			refs[ref] = struct{}{}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restored, e.refs = true, refs
}

// known reports whether setRestored was called.
func (e *earlyReferences) known() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.restored
}

// setListed notes that the cache of API objects has the references of the first complete list.
func (e *earlyReferences) setListed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listed, e.refs = true, nil
}

// mayRefer reports whether a pod of the API server may refer to the object although the cache of API
// objects has no such pod: a restored one does, or any may, because they are not known yet.
// complete means that no other pod refers to it either.
func (e *earlyReferences) mayRefer(ref objects.Ref) (refers, complete bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, refers = e.refs[ref]
	return !e.listed && (refers || !e.restored), e.listed
}

// restorable is the source of pods of the API server that takes note of restored pods.
type restorable struct {
	*podsource.Source
	early *earlyReferences
	// first delays the restored pods; nil: they are desired at once.
	first *firstList
}

var _ podconfig.RestoreDelayer = restorable{}

// RestoreAfter implements [podconfig.RestoreDelayer].
func (r restorable) RestoreAfter() <-chan struct{} {
	if r.first == nil {
		return nil
	}
	return r.first.unreachable
}

// Run implements [podconfig.Source].
func (r restorable) Run(ctx context.Context, sink podconfig.Sink) error {
	restored := sink.Restored()
	if !r.early.known() {
		r.early.setRestored(restored)
	}
	if r.first == nil || len(restored) == 0 {
		return r.Source.Run(ctx, sink)
	}
	ctx, cancel := context.WithCancel(ctx)
	var tested sync.WaitGroup
	defer tested.Wait()
	defer cancel() // before the wait
	tested.Go(func() { r.first.run(ctx) })
	return r.Source.Run(ctx, sink)
}

// object is a secret or a config map.
type object interface {
	metav1.Object
	kruntime.Object
}

// checkedCheckpoint is a checkpoint that answers no pod of the API server with a record of an
// object that only the node has. The records are those of all pods.
type checkedCheckpoint struct {
	checkpoint.Store
	refers func(objects.Ref) bool
}

// Objects implements [checkpoint.Store].
func (c checkedCheckpoint) Objects(src objects.Source) objects.Source {
	return checkedObjects{c.Store.Objects(src), c.refers}
}

// checkedObjects refuses objects that do not come from the API server, if a pod of it refers to
// them. These have no UID.
type checkedObjects struct {
	objects.Source
	refers func(objects.Ref) bool
}

// Secret implements [runtime.Objects].
func (c checkedObjects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return checkedLookup(ctx, c, objects.Ref{Kind: objects.SecretKind, Namespace: namespace, Name: name},
		c.Source.Secret)
}

// ConfigMap implements [runtime.Objects].
func (c checkedObjects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return checkedLookup(ctx, c, objects.Ref{Kind: objects.ConfigMapKind, Namespace: namespace, Name: name},
		c.Source.ConfigMap)
}

func checkedLookup[T object](ctx context.Context, c checkedObjects, ref objects.Ref,
	find func(ctx context.Context, namespace, name string) (T, error)) (none T, err error) {
	found, err := find(ctx, ref.Namespace, ref.Name)
	if err == nil && found.GetUID() == "" && c.refers(ref) { // asked after it: the pod may be new
		return none, fmt.Errorf("%s: %w", ref, objectcache.ErrNotRead)
	}
	return found, err
}

// refers reports whether a pod of the API server refers to the object, or one that is not known
// yet may.
func (n *Node) refers(ref objects.Ref) bool {
	early, _ := n.early.mayRefer(ref)
	return early || n.objects.Refers(ref)
}

// split looks up objects in the API server if a pod of it refers to them, and locally
// otherwise: static pods may refer to local objects.
type split struct {
	api, local objects.Source
	early      *earlyReferences
}

// Secret implements [runtime.Objects].
func (s *split) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return splitLookup(ctx, s, objects.Ref{Kind: objects.SecretKind, Namespace: namespace, Name: name},
		s.api.Secret, s.local.Secret)
}

// ConfigMap implements [runtime.Objects].
func (s *split) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return splitLookup(ctx, s, objects.Ref{Kind: objects.ConfigMapKind, Namespace: namespace, Name: name},
		s.api.ConfigMap, s.local.ConfigMap)
}

func splitLookup[T object](ctx context.Context, s *split, ref objects.Ref, api, local func(ctx context.Context,
	namespace, name string) (T, error)) (T, error) {
	refers, complete := s.early.mayRefer(ref) // before the lookup: what is not referenced later may be referenced
	object, err := api(ctx, ref.Namespace, ref.Name)
	if !errors.Is(err, objectcache.ErrNotReferenced) {
		return object, err
	}
	if refers {
		// A pod of the API server must not get an object that only the node has. The checkpoint
		// may have what the API server has answered for it.
		return object, fmt.Errorf("%s: %w", ref, objectcache.ErrNotRead)
	}
	found, localErr := local(ctx, ref.Namespace, ref.Name)
	if localErr == nil && found.GetUID() != "" {
		found = found.DeepCopyObject().(T) // of a manifest that was copied from a cluster
		found.SetUID("")                   // only what comes from the API server has one, see checkedObjects
	}
	if apierrors.IsNotFound(localErr) && !complete {
		// A pod of the API server that is not known yet may refer to the object: a checkpoint
		// must not take this answer for the truth.
		return object, err
	}
	return found, localErr
}

// Watch implements [objects.Source].
func (s *split) Watch(ctx context.Context, changed func(refs []objects.Ref)) error {
	calls := make(chan []objects.Ref) // unbuffered: calls of changed must not overlap
	g, ctx := errgroup.WithContext(ctx)
	for _, source := range []objects.Source{s.api, s.local} {
		g.Go(func() error {
			return source.Watch(ctx, func(refs []objects.Ref) {
				select {
				case calls <- refs:
				case <-ctx.Done():
				}
			})
		})
	}
	done := make(chan error, 1)
	go func() { done <- g.Wait() }()
	for {
		select {
		case refs := <-calls:
			changed(refs)
		case err := <-done:
			return err
		}
	}
}

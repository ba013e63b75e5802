package cluster

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/cluster/objectcache"
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

// apiSink is the sink that writes to the API server.
type apiSink interface {
	status.Sink
	status.EndSink
}

// bothSinks returns a sink that delivers to both; other may be nil.
func bothSinks(api apiSink, other status.Sink) status.Sink {
	if other == nil {
		return api
	}
	end, _ := runtime.Optional[status.EndSink](other)
	return &sinks{api: api, other: other, end: end}
}

// sinks are two sinks. Each receives everything, also if the other one fails. A status that
// only one has accepted is delivered to both again.
type sinks struct {
	api   apiSink
	other status.Sink
	end   status.EndSink // other; nil if it has no use for ends
}

// Deliver implements [status.Sink]. That a pod is gone in the API is not passed on while the
// other sink has not accepted the status.
func (s *sinks) Deliver(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	other := s.other.Deliver(ctx, pod, st)
	return firstUnlessGone(other, s.api.Deliver(ctx, pod, st))
}

// PodGone implements [status.EndSink].
func (s *sinks) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	var other error
	if s.end != nil {
		other = s.end.PodGone(ctx, pod, last)
	}
	return firstUnlessGone(other, s.api.PodGone(ctx, pod, last))
}

// firstUnlessGone returns an error that is repeated if one of the two is to be.
func firstUnlessGone(other, api error) error {
	if other != nil && !errors.Is(other, status.ErrGone) {
		return other
	}
	return api
}

// Unwrap makes optional interfaces of the other sink visible.
func (s *sinks) Unwrap() any { return s.other }

// bothObjects returns a source of what pods of the API server and other pods refer to; local
// may be nil. synced reports whether the pods of the API server are known.
func bothObjects(api, local objects.Source, synced func() bool) objects.Source {
	if local == nil {
		return api
	}
	return &split{api: api, local: local, synced: synced}
}

// split looks up objects in the API server if a pod of it refers to them, and locally
// otherwise: static pods may refer to local objects.
type split struct {
	api, local objects.Source
	synced     func() bool
}

// Secret implements [runtime.Objects].
func (s *split) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return splitLookup(ctx, s, namespace, name, s.api.Secret, s.local.Secret)
}

// ConfigMap implements [runtime.Objects].
func (s *split) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return splitLookup(ctx, s, namespace, name, s.api.ConfigMap, s.local.ConfigMap)
}

func splitLookup[T any](ctx context.Context, s *split, namespace, name string, api, local func(ctx context.Context, namespace, name string) (T, error)) (T, error) {
	synced := s.synced() // before the lookup: what is not referenced later may be referenced
	object, err := api(ctx, namespace, name)
	if !errors.Is(err, objectcache.ErrNotReferenced) {
		return object, err
	}
	found, localErr := local(ctx, namespace, name)
	if apierrors.IsNotFound(localErr) && !synced {
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

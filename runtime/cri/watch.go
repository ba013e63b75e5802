package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// errStreamEnded is how a stream ends for which the runtime had no error.
var errStreamEnded = errors.New("the runtime has ended the stream of events; CRI-O does so at once unless enable_pod_events is set")

// WatchEvents implements [runtime.EventSource] with GetContainerEvents (KEP-3386). Both
// callbacks are called from the goroutine of the caller.
//
// When established is called depends on the runtime: those that send a header as
// soon as they listen are known to, others, like containerd and CRI-O, when they have
// sent the first event, which may take any time. containerd then begins with what has
// happened in the 5 minutes before, if nobody else was listening.
//
// Nothing bounds the call but ctx. It needs no keepalive: the kernel ends the
// connection when the process at the other end of a local socket is gone, whatever
// became of it. A runtime that hangs with its socket open is silent, as is one in
// which nothing happens; only another call can tell the two apart.
func (r *Runtime) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	const name = "GetContainerEvents"
	ctx, cancel := context.WithCancel(ctx) // ends the stream with the call
	defer cancel()
	stream, err := r.rs.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	if err != nil {
		return wrapCall(name, "", err, ctx.Err())
	}
	stands := func() {
		if established != nil {
			established()
			established = nil
		}
	}
	// A header that comes with the first event is waited for until then. There is none
	// if the stream has ended; Recv has the reason.
	if header, err := stream.Header(); err == nil && header != nil {
		stands()
	}
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%s: %w", name, errStreamEnded)
		case err != nil:
			return wrapCall(name, "", err, ctx.Err())
		}
		stands()
		hint(hintOf(event, time.Now()))
	}
}

// hintOf takes from an event what it is about. Everything in it may be missing, and
// its type be unknown: then the pod is to be looked at, whatever has happened.
func hintOf(event *criv1.ContainerEventResponse, now time.Time) runtime.Hint {
	h := runtime.Hint{Pod: podOfEvent(event), ID: event.GetContainerId(), Event: happened(event)}
	if at := event.GetCreatedAt(); at > 0 {
		h.Age = max(0, now.Sub(time.Unix(0, at))) // below 0 if the clock was set back
	}
	return h
}

// happened is what an event says. An event about nothing says nothing: its type is the
// number of a creation.
func happened(event *criv1.ContainerEventResponse) runtime.HintEvent {
	if event.GetContainerId() == "" {
		return ""
	}
	switch event.GetContainerEventType() {
	case criv1.ContainerEventType_CONTAINER_CREATED_EVENT:
		return runtime.HintCreated
	case criv1.ContainerEventType_CONTAINER_STARTED_EVENT:
		return runtime.HintStarted
	case criv1.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return runtime.HintStopped
	case criv1.ContainerEventType_CONTAINER_DELETED_EVENT:
		return runtime.HintDeleted
	default:
		return ""
	}
}

// podOfEvent returns the pod that an event is about, as far as the event says. The
// labels come first: it is by them that pods are listed.
func podOfEvent(event *criv1.ContainerEventResponse) runtime.PodRef {
	sandbox := event.GetPodSandboxStatus()
	if ref, _ := crimeta.RefFromLabels(sandbox.GetLabels()); ref.UID != "" {
		return ref
	}
	if meta := sandbox.GetMetadata(); meta.GetUid() != "" {
		return runtime.PodRef{UID: types.UID(meta.GetUid()), Namespace: meta.GetNamespace(), Name: meta.GetName()}
	}
	// containerd leaves the sandbox out when it is being removed. The containers are all
	// of the same pod.
	for _, c := range event.GetContainersStatuses() {
		if ref, _ := crimeta.RefFromLabels(c.GetLabels()); ref.UID != "" {
			return ref
		}
	}
	return runtime.PodRef{}
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// errStreamEnded is the error of an event stream that the runtime has ended without one.
var errStreamEnded = errors.New("the runtime has ended the stream of events; CRI-O does so at once unless " +
	"enable_pod_events is set")

// WatchEvents implements [runtime.EventSource] with GetContainerEvents (KEP-3386). It calls
// both callbacks from the goroutine of the caller.
//
// established is called when the runtime sends a header, or the first event if it sends
// no header before, as containerd and CRI-O do. This may take any time. containerd begins
// with the events of the last 5 minutes, if there was no other listener.
//
// Only ctx bounds the call. It needs no keepalive: the kernel closes a local socket when
// the process at its other end has ended. The stream of a runtime that hangs does not
// differ from that of an idle one; only another call can show the difference.
func (r *Runtime) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	const name = "GetContainerEvents"
	ctx, cancel := context.WithCancel(ctx) // ends the stream with the call
	defer cancel()
	stream, err := r.rs.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	if err != nil {
		return wrapCall(name, "", err, ctx.Err())
	}
	stood := false
	stands := func() {
		if stood {
			return
		}
		stood = true
		r.index.streamBegan()
		if established != nil {
			established()
		}
	}
	defer func() {
		if stood {
			r.index.streamEnded()
		}
	}()
	// If the header comes with the first event, this waits for it. There is no header if
	// the stream has ended; then Recv returns the error.
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
		h := hintOf(event, time.Now())
		r.noteEvent(event, h)
		hint(h)
	}
}

// noteEvent notes in the index what an event shows. It adds something only if another client
// of the runtime has created it, or if the call that has created it has not returned yet.
func (r *Runtime) noteEvent(event *criv1.ContainerEventResponse, h runtime.Hint) {
	sandboxID := event.GetPodSandboxStatus().GetId()
	if h.Event == runtime.HintStopped {
		r.removal.stopped(h.ID)
	}
	switch {
	case h.Event == runtime.HintDeleted:
		r.index.removed(h.ID)
	case h.Pod.UID == "" || r.index.has(h.ID):
	case h.ID == "" || sandboxID == "":
		r.index.doubt(h.Pod.UID)
	case h.ID == sandboxID:
		r.index.addSandbox(h.Pod.UID, h.ID, false)
	default:
		i := slices.IndexFunc(event.GetContainersStatuses(),
			func(c *criv1.ContainerStatus) bool { return c.GetId() == h.ID })
		if i < 0 {
			r.index.doubt(h.Pod.UID)
			return
		}
		c := event.GetContainersStatuses()[i]
		r.index.addContainer(h.Pod.UID, h.ID, containerName(c.GetLabels(), c.GetMetadata()), sandboxID)
	}
}

// hintOf converts an event. Any part of it may be missing, and its type may be unknown:
// the pod is inspected in any case.
func hintOf(event *criv1.ContainerEventResponse, now time.Time) runtime.Hint {
	h := runtime.Hint{Pod: podOfEvent(event), ID: event.GetContainerId(), Event: happened(event)}
	if at := event.GetCreatedAt(); at > 0 {
		h.Age = max(0, now.Sub(time.Unix(0, at))) // negative if the clock was set back
	}
	return h
}

// happened returns the type of an event, "" if it is unknown or the event has no ID: the
// zero value of the type is that of a creation.
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

// podOfEvent returns the pod of an event, as far as the event has it. The labels take
// precedence, since lists of pods use them.
func podOfEvent(event *criv1.ContainerEventResponse) runtime.PodRef {
	sandbox := event.GetPodSandboxStatus()
	if ref, _ := crimeta.RefFromLabels(sandbox.GetLabels()); ref.UID != "" {
		return ref
	}
	if meta := sandbox.GetMetadata(); podspec.IsFileName(types.UID(meta.GetUid())) {
		return runtime.PodRef{UID: types.UID(meta.GetUid()), Namespace: meta.GetNamespace(), Name: meta.GetName()}
	}
	// containerd omits the sandbox while it is being removed. All containers belong to
	// the same pod.
	for _, c := range event.GetContainersStatuses() {
		if ref, _ := crimeta.RefFromLabels(c.GetLabels()); ref.UID != "" {
			return ref
		}
	}
	return runtime.PodRef{}
}

package events

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// maxQueued is the number of events that wait to be written. It is client-go's.
	maxQueued = 1000
	// maxMessage is the maximum size of a message in bytes. A runtime's error may have
	// megabytes; those of kubelet's probes have 10 KiB.
	maxMessage = 16 << 10
)

// Options are the settings of a [Recorder]. The zero value is valid.
type Options struct {
	// Component is the source of the events. Default "kubelet", which tools select events
	// by.
	Component string
	// Pod returns the pod of the API server with the UID. The Recorder takes its resource
	// version. Pod must not block. nil: events have no resource version.
	Pod func(uid types.UID) (*v1.Pod, bool)
	// NodeUID returns the UID of the node object, for events about the node. It must not block. If it is nil or returns
	// "", the UID in an event is the name of the node.
	NodeUID func() types.UID
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Recorder writes events to an API server. Its methods are safe for concurrent use.
type Recorder struct {
	client  kubernetes.Interface
	source  v1.EventSource
	pod     func(uid types.UID) (*v1.Pod, bool)
	nodeUID func() types.UID
	log     logr.Logger
	started atomic.Bool
	dropped atomic.Uint64
	// last is the time of the latest event in Unix nanoseconds. It is part of the name of the
	// Event object, so no two events have the same.
	last atomic.Int64
	// queue has the events that are to be written. If it is full, Event drops.
	queue chan *v1.Event
	// correlator is used by Run only.
	correlator *record.EventCorrelator
}

// New returns a Recorder for the events of the node. It does no I/O.
func New(client kubernetes.Interface, nodeName string, opts Options) (*Recorder, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("the client is nil"))
	}
	if nodeName == "" {
		errs = append(errs, errors.New("the name of the node is empty"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	component := opts.Component
	if component == "" {
		component = "kubelet"
	}
	return &Recorder{
		client: client, source: v1.EventSource{Component: component, Host: nodeName},
		pod: opts.Pod, nodeUID: opts.NodeUID, log: opts.Logger, queue: make(chan *v1.Event, maxQueued),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{KeyFunc: keysOf}),
	}, nil
}

// keysOf returns the key of events that are aggregated, and that of an event among them, as
// record.EventAggregatorByReasonFunc does, but with a hash of the message. The correlator keeps ten of the latter for
// each of 4096 of the former, and a container chooses the messages of its probes.
func keysOf(e *v1.Event) (aggregate, local string) {
	aggregate, local = record.EventAggregatorByReasonFunc(e)
	sum := sha256.Sum256([]byte(local))
	return aggregate, string(sum[:])
}

// Event has the event written by [Recorder.Run]. It is a [runtime.EventFunc]: it does not
// block. An event without a pod is about the node. Count, First and Last have no effect.
func (r *Recorder) Event(e runtime.Event) {
	var version string
	if r.pod != nil && e.Pod.UID != "" {
		if pod, ok := r.pod(e.Pod.UID); ok {
			version = pod.ResourceVersion
		}
	}
	object := objectOf(e, r.source, version, r.now())
	if object.InvolvedObject.Kind == "Node" && r.nodeUID != nil {
		object.InvolvedObject.UID = cmp.Or(r.nodeUID(), object.InvolvedObject.UID)
	}
	select {
	case r.queue <- object:
	default:
		if r.dropped.Add(1) == 1 {
			r.log.Error(nil, "Too many events wait to be written to the API server; some are dropped", "pod", e.Pod,
				"reason", e.Reason, "waiting", maxQueued)
		}
	}
}

// now returns the time, or if another event has had it, the next nanosecond.
func (r *Recorder) now() time.Time {
	for {
		last := r.last.Load()
		now := max(time.Now().UnixNano(), last+1)
		if r.last.CompareAndSwap(last, now) {
			return time.Unix(0, now)
		}
	}
}

// Dropped returns the number of events that were dropped because too many waited.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// objectOf returns the Event object of one event.
func objectOf(e runtime.Event, source v1.EventSource, resourceVersion string, now time.Time) *v1.Event {
	about := v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID,
		ResourceVersion: resourceVersion, FieldPath: e.FieldPath,
	}
	namespace := e.Pod.Namespace
	if e.Pod == (runtime.PodRef{}) {
		about = v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: source.Host, UID: types.UID(source.Host)}
		namespace = metav1.NamespaceDefault
	}
	at := metav1.NewTime(now)
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: util.GenerateEventName(about.Name,
			now.UnixNano()), Annotations: maps.Clone(e.Annotations)},
		InvolvedObject: about, Type: e.Type, Reason: e.Reason, Message: cut(e.Message),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: source, ReportingController: source.Component, ReportingInstance: source.Host,
	}
}

// cut returns a message that an Event object may have.
func cut(message string) string {
	if len(message) > maxMessage {
		message = message[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}

// Run writes events until ctx ends, and then returns nil. A second call returns an error
// that wraps [runtime.ErrAlreadyRunning].
func (r *Recorder) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return fmt.Errorf("events: %w", runtime.ErrAlreadyRunning)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-r.queue:
			result, err := r.correlator.EventCorrelate(event)
			if err != nil { // the patch of an event cannot be made
				r.log.Error(err, "Event is not written", "object", event.InvolvedObject.Name, "reason", event.Reason)
			} else if !result.Skip {
				r.deliver(ctx, result.Event, result.Patch)
			}
		}
	}
}

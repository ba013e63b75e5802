// Package recent keeps in memory what happened to the pods of an agent: the latest events
// of each pod, and the last status of pods that are gone from the node.
//
// A [Pods] is given to the agent as the receiver of events and as the sink of statuses.
package recent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// The bounds of what is kept; beyond them the oldest is dropped.
const (
	// maxEvents is the number of different events that are kept of a pod.
	maxEvents = 50
	// maxMessage is the number of bytes that are kept of the message of an event, as in the
	// API (events.k8s.io, note). The output of a probe has up to 10 KiB.
	maxMessage = 1024
	// maxGone is the number of pods that are kept although they are gone.
	maxGone = 100
)

// Pods has the pods of an agent. Make one with [New]. It is safe for concurrent use.
type Pods struct {
	status.SinkBase
	changed func(runtime.PodRef)

	mu   sync.Mutex
	pods map[types.UID]*record
	// gone has the UIDs of the pods that are not on the node, the oldest first: they
	// are gone, or only an event names them.
	gone []types.UID
}

// record is what is kept of a pod.
type record struct {
	ref runtime.PodRef
	// pod and status are as last delivered; pod is nil if nothing was.
	pod    *v1.Pod
	status v1.PodStatus
	// goneAt is zero while the pod is on the node.
	goneAt time.Time
	// events are sorted by the time of their last repeat, the oldest first.
	events []runtime.Event
}

var _ status.Sink = (*Pods)(nil)

// New returns a Pods. changed is called after each event and each change of a status, and must
// not block; it may be nil.
func New(changed func(runtime.PodRef)) *Pods {
	if changed == nil {
		changed = func(runtime.PodRef) {}
	}
	return &Pods{changed: changed, pods: map[types.UID]*record{}}
}

// Event keeps an event. It is a [runtime.EventFunc] for merged events, see
// [runtime.MergeEvents]. Events about the node are not kept.
func (p *Pods) Event(e runtime.Event) {
	if e.Pod.UID == "" {
		return
	}
	if len(e.Message) > maxMessage {
		// A copy, so that the rest is not kept, without a part of a character at its end.
		e.Message = strings.ToValidUTF8(strings.Clone(e.Message[:maxMessage]), "")
	}
	defer p.changed(e.Pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.pods[e.Pod.UID]
	if r == nil {
		r = &record{ref: e.Pod}
		p.pods[e.Pod.UID] = r
		p.leave(e.Pod.UID)
	}
	r.events = slices.DeleteFunc(r.events, func(old runtime.Event) bool { return sameEvent(old, e) })
	if len(r.events) == maxEvents {
		r.events = slices.Delete(r.events, 0, 1)
	}
	r.events = append(r.events, e)
}

// sameEvent reports whether b is a repeat of a.
func sameEvent(a, b runtime.Event) bool {
	return a.Pod == b.Pod && a.FieldPath == b.FieldPath && a.Type == b.Type && a.Reason == b.Reason &&
		a.Message == b.Message &&
		a.First == b.First // after a pause an event is a new one
}

// Deliver implements [status.Sink].
func (p *Pods) Deliver(_ context.Context, pod *v1.Pod, s v1.PodStatus) (status.Result, error) {
	p.mu.Lock()
	r := p.pods[pod.UID]
	if r == nil {
		r = &record{}
		p.pods[pod.UID] = r
	}
	r.ref, r.pod, r.status, r.goneAt = runtime.RefOf(pod), pod, s, time.Time{}
	p.gone = slices.DeleteFunc(p.gone, func(uid types.UID) bool { return uid == pod.UID })
	p.mu.Unlock()
	p.changed(runtime.RefOf(pod))
	return status.Result{}, nil
}

// PodGone implements [status.Sink].
func (p *Pods) PodGone(_ context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	p.mu.Lock()
	r := p.pods[pod.UID]
	if r == nil {
		r = &record{ref: pod}
		p.pods[pod.UID] = r
	}
	if last != nil {
		r.status = *last
	}
	if r.goneAt.IsZero() {
		r.goneAt = time.Now()
		p.leave(pod.UID)
	}
	p.mu.Unlock()
	p.changed(pod)
	return nil
}

// leave makes the pod the latest of those that are not on the node, and drops the oldest
// of them if there are too many. p.mu is held.
func (p *Pods) leave(uid types.UID) {
	p.gone = append(slices.DeleteFunc(p.gone, func(other types.UID) bool { return other == uid }), uid)
	if len(p.gone) > maxGone {
		delete(p.pods, p.gone[0])
		p.gone = slices.Delete(p.gone, 0, 1)
	}
}

// Events returns the latest events of the pod, the oldest first.
func (p *Pods) Events(uid types.UID) []runtime.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.pods[uid]; r != nil {
		return slices.Clone(r.events)
	}
	return nil
}

// AllEvents returns the latest events of all pods, the oldest first.
func (p *Pods) AllEvents() (all []runtime.Event) {
	p.mu.Lock()
	for _, r := range p.pods {
		all = append(all, r.events...)
	}
	p.mu.Unlock()
	slices.SortStableFunc(all, func(a, b runtime.Event) int { return a.Last.Compare(b.Last) })
	return all
}

// OnNode returns copies of the pods that are on the node and that match, with the latest
// statuses, in no order. All but the struct is shared.
func (p *Pods) OnNode(match func(runtime.PodRef) bool) (pods []*v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.pods {
		if r.pod != nil && r.goneAt.IsZero() && match(r.ref) {
			pods = append(pods, r.withStatus())
		}
	}
	return pods
}

// Gone is a pod that is gone from the node.
type Gone struct {
	// Pod has its last status. If it was gone before it started, it has no spec.
	Pod *v1.Pod   `json:"pod"`
	At  time.Time `json:"at"`
	// Logs is true if its logs were not removed yet. [Pods.Gone] leaves it to its caller.
	Logs bool `json:"logs,omitempty"`
}

// Gone returns the pods that are gone, the latest first.
func (p *Pods) Gone() []Gone {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []Gone
	for _, uid := range slices.Backward(p.gone) {
		if r := p.pods[uid]; !r.goneAt.IsZero() {
			gone = append(gone, Gone{Pod: r.withStatus(), At: r.goneAt})
		}
	}
	return gone
}

// withStatus returns a copy of the pod with its last status.
func (r *record) withStatus() *v1.Pod {
	if r.pod == nil {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: r.ref.UID, Namespace: r.ref.Namespace, Name: r.ref.Name},
			Status: r.status}
	}
	pod := *r.pod
	pod.Status = r.status
	return &pod
}

package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// pendingPods are the pods whose events wait for the reader, in the order in which
// their first event became ready, each with the set of its events. It belongs to one
// goroutine.
type pendingPods struct {
	// pods has the same nodes as the list from head to tail.
	pods       map[types.UID]*pendingPod
	head, tail *pendingPod
}

type pendingPod struct {
	PodEvents
	next *pendingPod
}

// add merges events of a pod into the set, and keeps the slice. Without events it does
// nothing.
func (p *pendingPods) add(ref runtime.PodRef, events []Event) {
	if len(events) == 0 {
		return
	}
	if n := p.pods[ref.UID]; n != nil {
		n.Events = merge(n.Events, events)
		return
	}
	n := &pendingPod{PodEvents: PodEvents{Pod: ref, Events: events}}
	if p.head == nil {
		p.head = n
	} else {
		p.tail.next = n
	}
	p.tail = n
	if p.pods == nil {
		p.pods = map[types.UID]*pendingPod{}
	}
	p.pods[ref.UID] = n
}

// first returns the first pod, or false if there is none.
func (p *pendingPods) first() (PodEvents, bool) {
	if p.head == nil {
		return PodEvents{}, false
	}
	return p.head.PodEvents, true
}

// removeFirst removes the first pod. There must be one.
func (p *pendingPods) removeFirst() {
	delete(p.pods, p.head.Pod.UID)
	p.head = p.head.next
	if p.head == nil {
		p.tail = nil
	}
}

package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// dirtySet holds what the reader has yet to take: the dirty pods in the order in
// which they became dirty, each with the set of its events. It belongs to one
// goroutine.
type dirtySet struct {
	// pods has the same nodes as the list from head to tail.
	pods       map[types.UID]*dirtyPod
	head, tail *dirtyPod
}

type dirtyPod struct {
	PodEvents
	next *dirtyPod
}

// add merges events of a pod into the set, which keeps the slice. Without events
// it does nothing.
func (d *dirtySet) add(ref runtime.PodRef, events []Event) {
	if len(events) == 0 {
		return
	}
	if n := d.pods[ref.UID]; n != nil {
		n.Events = merge(n.Events, events)
		return
	}
	n := &dirtyPod{PodEvents: PodEvents{Pod: ref, Events: events}}
	if d.head == nil {
		d.head = n
	} else {
		d.tail.next = n
	}
	d.tail = n
	if d.pods == nil {
		d.pods = map[types.UID]*dirtyPod{}
	}
	d.pods[ref.UID] = n
}

// pop removes the first pod; the set must not be empty.
func (d *dirtySet) pop() {
	delete(d.pods, d.head.Pod.UID)
	d.head = d.head.next
	if d.head == nil {
		d.tail = nil
	}
}

package pleg

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Tap returns a [Generator] that calls f with the events of g and passes them on to its reader. f receives each event
// once, as soon as g has it, however slow the reader is: events that wait for the reader are merged as those of g are.
// When f is called, the cache holds the status of the pod already.
//
// Calls of f do not overlap. The reader waits while f runs, so f should return soon. It may keep the events.
//
//	opts.Override.PLEG = kubeletkit.Wrap(func(g pleg.Generator) pleg.Generator {
//		return pleg.Tap(g, func(pod pleg.PodEvents) { log.Println(pod.Pod, pod.Events) })
//	})
func Tap(g Generator, f func(PodEvents)) Generator {
	return &tap{Generator: g, f: f, out: make(chan PodEvents)}
}

type tap struct {
	Generator
	f       func(PodEvents)
	started atomic.Bool
	// out has no buffer: events stay in the set of pending pods until the reader takes them.
	out chan PodEvents
}

// Watch implements [Generator].
func (t *tap) Watch() <-chan PodEvents { return t.out }

// Run implements [Generator].
func (t *tap) Run(ctx context.Context) error {
	if !t.started.CompareAndSwap(false, true) {
		return fmt.Errorf("pleg: %w", runtime.ErrAlreadyRunning)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var forward sync.WaitGroup
	forward.Go(func() { t.forward(ctx) })
	err := t.Generator.Run(ctx)
	cancel()
	forward.Wait()
	close(t.out)
	return err
}

// forward passes events on until ctx ends.
func (t *tap) forward(ctx context.Context) {
	var pending pendingPods
	in := t.Generator.Watch()
	for {
		var out chan<- PodEvents
		next, ready := pending.first()
		if ready {
			out = t.out
		}
		select {
		case <-ctx.Done():
			return
		case pod, open := <-in:
			if !open {
				in = nil // what waits can still be read
				continue
			}
			t.f(PodEvents{Pod: pod.Pod, Events: slices.Clone(pod.Events)})
			pending.add(pod.Pod, pod.Events)
		case out <- next:
			pending.removeFirst()
		}
	}
}

package pleg_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// oneContainer is a runtime with one pod of one container.
type oneContainer struct {
	mu    sync.Mutex
	state runtime.ContainerState
	code  int32
}

func (o *oneContainer) exit(code int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state, o.code = runtime.ContainerExited, code
}

func (o *oneContainer) container() runtime.Container {
	return runtime.Container{ID: runtime.ContainerID{Type: "example", ID: "c1"}, Name: "web", State: o.state}
}

var ref = runtime.PodRef{UID: "1", Namespace: "default", Name: "shop"}

func (o *oneContainer) ListPods(context.Context) ([]*runtime.Pod, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return []*runtime.Pod{{PodRef: ref, Containers: []runtime.Container{o.container()}}}, nil
}

func (o *oneContainer) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &runtime.PodStatus{PodRef: ref,
		Containers: []runtime.ContainerStatus{{Container: o.container(), ExitCode: o.code}}}, nil
}

func Example() {
	rt := &oneContainer{state: runtime.ContainerRunning}
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	events := pleg.NewGeneric(rt, cache, pleg.Options{})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = events.Run(ctx) }()

	for change := range events.Watch() { // until Run ends
		for _, event := range change.Events {
			fmt.Println(change.Pod, event.Name, event.Type)
			switch event.Type {
			case pleg.ContainerStarted:
				rt.exit(3)
				events.Relist() // do not wait for the next one
			case pleg.ContainerDied:
				status, _ := cache.Get(change.Pod.UID)
				fmt.Println("exit code", status.ByID(event.ContainerID).ExitCode)
				stop()
			}
		}
	}
	// Output:
	// default/shop(1) web ContainerStarted
	// default/shop(1) web ContainerDied
	// exit code 3
}

// streaming is a runtime that has an event stream, too.
type streaming struct {
	oneContainer
	hints chan runtime.Hint
}

func (s *streaming) exit(code int32) {
	s.oneContainer.exit(code)
	s.hints <- runtime.Hint{Pod: ref, ID: "c1", Event: runtime.HintStopped}
}

func (s *streaming) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	established()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-s.hints:
			hint(h)
		}
	}
}

func ExampleEvented() {
	rt := &streaming{oneContainer{state: runtime.ContainerRunning}, make(chan runtime.Hint)}
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	events := pleg.NewEvented(rt, cache, pleg.EventedOptions{})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = events.Run(ctx) }()

	for change := range events.Watch() { // until Run ends
		for _, event := range change.Events {
			fmt.Println(change.Pod, event.Name, event.Type)
			switch event.Type {
			case pleg.ContainerStarted:
				rt.exit(3) // the reader receives it at once
			case pleg.ContainerDied:
				status, _ := cache.Get(change.Pod.UID)
				fmt.Println("exit code", status.ByID(event.ContainerID).ExitCode)
				stop()
			}
		}
	}
	// Output:
	// default/shop(1) web ContainerStarted
	// default/shop(1) web ContainerDied
	// exit code 3
}

// A tap on the events of a generator that an agent reads.
func ExampleTap() {
	rt := &oneContainer{state: runtime.ContainerRunning}
	var events pleg.Generator = pleg.NewGeneric(rt, runtime.NewCache(rt, runtime.CacheOptions{}), pleg.Options{})
	events = pleg.Tap(events, func(change pleg.PodEvents) { fmt.Println("tap:", change.Pod, change.Events[0].Type) })

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = events.Run(ctx) }()
	for change := range events.Watch() { // the reader, in an agent the sync loop
		fmt.Println("reader:", change.Pod, change.Events[0].Type)
		stop()
	}
	// Output:
	// tap: default/shop(1) ContainerStarted
	// reader: default/shop(1) ContainerStarted
}

package harness

import (
	"context"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Events are the events of a runtime from now on.
type Events struct {
	mu      sync.Mutex
	on      func(*cri.ContainerEventResponse)
	started map[string]time.Time // by pod name and container ID, the arrival
	changed chan struct{}
	stop    func()
}

// Stop ends the stream, and returns when no event is taken any more.
func (e *Events) Stop() { e.stop() }

// WatchEvents follows the runtime's events until Stop is called or the test ends. on, if not nil, is
// called for each as it arrives and must not block.
func (c *Client) WatchEvents(t testing.TB, on func(*cri.ContainerEventResponse)) *Events {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.Runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	e := &Events{on: on, started: map[string]time.Time{}, changed: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			e.take(event)
		}
	}()
	e.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(e.stop)
	return e
}

func (e *Events) take(event *cri.ContainerEventResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pod := event.GetPodSandboxStatus().GetMetadata()
	if event.ContainerEventType == cri.ContainerEventType_CONTAINER_STARTED_EVENT && pod != nil {
		key := pod.Name + "/" + event.ContainerId
		if _, ok := e.started[key]; !ok {
			e.started[key] = time.Now()
		}
		close(e.changed)
		e.changed = make(chan struct{})
	}
	if e.on != nil {
		e.on(event)
	}
}

// AwaitStart waits until a container of the pod starts after the given time, and
// returns when the event of that arrived.
func (e *Events) AwaitStart(t testing.TB, pod string, after time.Time, timeout time.Duration) time.Time {
	t.Helper()
	late := time.After(timeout)
	for {
		e.mu.Lock()
		changed := e.changed
		for key, at := range e.started {
			if len(key) > len(pod) && key[:len(pod)] == pod && key[len(pod)] == '/' && at.After(after) {
				e.mu.Unlock()
				return at
			}
		}
		e.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no container of pod %s has started within %v", pod, timeout)
		}
	}
}

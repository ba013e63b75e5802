package process

import (
	"sync"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBuffer is how many events a reader may lag behind. One that lags more is cut
// off with an error, so that it knows to look for itself; none is left out silently.
const eventBuffer = 1024

// broadcaster hands events to all who read. Its zero value has no readers.
type broadcaster struct {
	mu      sync.Mutex
	readers map[*reader]struct{}
}

// reader is one that reads events.
type reader struct {
	// events has room for eventBuffer; it is closed if that is too little.
	events chan *criv1.ContainerEventResponse
}

func (b *broadcaster) subscribe() *reader {
	r := &reader{events: make(chan *criv1.ContainerEventResponse, eventBuffer)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readers == nil {
		b.readers = map[*reader]struct{}{}
	}
	b.readers[r] = struct{}{}
	return r
}

func (b *broadcaster) unsubscribe(r *reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.readers, r)
}

// wanted reports whether anybody reads, so that no event need be made for nobody.
func (b *broadcaster) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.readers) > 0
}

func (b *broadcaster) publish(e *criv1.ContainerEventResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.readers {
		select {
		case r.events <- e:
		default:
			delete(b.readers, r)
			close(r.events)
		}
	}
}

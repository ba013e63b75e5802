package process

import (
	"sync"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBuffer is the number of events that a reader may be behind. The stream of a reader
// that is further behind ends with an error, so that it lists and subscribes again.
const eventBuffer = 1024

// broadcaster sends events to all readers. The zero value has no readers.
type broadcaster struct {
	mu      sync.Mutex
	readers map[*reader]struct{}
}

// reader is the subscription of a reader of events.
type reader struct {
	// events is closed when it is full, which is after eventBuffer events.
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

// wanted reports whether there is a reader.
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

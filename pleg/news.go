package pleg

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxStrays is how many IDs of hints without a pod are kept apart, at most. Beyond
// that a relist finds what they were about.
const maxStrays = 1000

// news is what the goroutine of the event stream has to tell the one of Run. It is a
// state and sets, not a queue: whoever writes to it never waits, and it does not grow
// with the number of hints.
type news struct {
	// wake has room for one: it is full when there are news.
	wake chan struct{}

	mu sync.Mutex
	bulletin
	// holds counts, by pod, those who change it and will look at it themselves; late
	// has the hints about these pods meanwhile.
	holds map[types.UID]int
	late  map[types.UID]hinted
}

// bulletin is what has been told since the last time.
type bulletin struct {
	stream streamState
	// broken says that the stream has broken since the last time, and why.
	broken error
	// pods that were hinted at.
	pods map[types.UID]hinted
	// heard are pods that were hinted at, but are not to be looked at yet.
	heard map[types.UID]struct{}
	// strays are the IDs of hints that named no pod. strayMark was drawn with the last;
	// lost says that there was one without an ID, or more than there is room for.
	strays    map[string]struct{}
	strayMark runtime.Mark
	lost      bool
}

// hinted is a hint; mark was drawn after it had come.
type hinted struct {
	runtime.Hint
	mark runtime.Mark
	// more are those before it that say something else.
	more []runtime.Hint
}

// maxMore is how many hints about one pod are kept apart, at most.
const maxMore = 16

// and returns what one hint after another comes to; the first may be zero.
func (p hinted) and(h runtime.Hint, mark runtime.Mark) hinted {
	next := hinted{Hint: h, mark: mark, more: p.more}
	if p.Pod.UID == "" || p.ID == h.ID && p.Event == h.Event {
		return next
	}
	if next.more = append(next.more, p.Hint); len(next.more) > maxMore {
		next.Event, next.more = "", nil // which no view shows
	}
	return next
}

// streamState is what is known of the event stream.
type streamState struct {
	// n counts the streams that were opened; 0 is none yet.
	n uint64
	// open says that there is one, up that it has shown signs of life, never that there
	// will not be one.
	open, up, never bool
	// giveUp ends the stream.
	giveUp context.CancelCauseFunc
}

// take returns the news and forgets them, but for the state of the stream.
func (n *news) take() bulletin {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.bulletin
	n.bulletin = bulletin{stream: b.stream}
	return b
}

// tell has the news changed, with mu held, and wakes who reads them.
func (n *news) tell(change func(*news)) {
	n.mu.Lock()
	change(n)
	n.mu.Unlock()
	n.rouse()
}

func (n *news) rouse() {
	select {
	case n.wake <- struct{}{}:
	default: // it is awake already
	}
}

// hint adds a hint; mark was drawn after it had come. mu is held.
func (n *news) hint(h runtime.Hint, mark runtime.Mark) {
	b := &n.bulletin
	switch uid := h.Pod.UID; {
	case n.holds[uid] > 0:
		put(&n.late, uid, n.late[uid].and(h, mark))
		put(&b.heard, uid, struct{}{})
	case uid != "":
		put(&b.pods, uid, b.pods[uid].and(h, mark))
	case h.ID != "" && len(b.strays) < maxStrays:
		put(&b.strays, h.ID, struct{}{})
		b.strayMark = mark
	default:
		b.lost = true
	}
}

// put sets an element of a map that may be nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

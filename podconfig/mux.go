package podconfig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrRunTwice is returned by [Mux.Run] when it was called before.
var ErrRunTwice = errors.New("the pod config mux was already run")

// MuxOptions are the settings of a [Mux].
type MuxOptions struct {
	// Logger; the zero value discards.
	Logger logr.Logger
	// Sources of pods. Their names must differ. Where two offer the same new pod at
	// the same moment, one of them gets it, as a rule the one that stands first here.
	Sources []Source
	// Rejected, if not nil, is told of each pod that is held back, once for as long
	// as it is. It runs in the goroutine of [Mux.Run] and must not block.
	Rejected func(Rejection)
}

// Mux makes of the full snapshots of any number of sources one ordered stream of
// changes. It is safe for concurrent use.
type Mux struct {
	logger   logr.Logger
	sources  []Source
	rejected func(Rejection)

	started atomic.Bool
	changes chan Change
	// dirty holds one token while some source has a snapshot that was not taken.
	dirty chan struct{}

	mu sync.Mutex
	// pending has, by source, the newest snapshot that was not taken yet; an older
	// one is replaced, so that a slow reader costs no memory.
	pending []*snapshot
	// announced says by source that its first snapshot has reached the reader.
	announced []bool
}

type snapshot struct{ pods []*v1.Pod }

// NewMux returns a mux over the sources. It does nothing until it is run.
func NewMux(opts MuxOptions) (*Mux, error) {
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
	}
	var errs []error
	names := map[string]int{}
	for i, s := range opts.Sources {
		if s == nil {
			errs = append(errs, fmt.Errorf("source %d is nil", i))
			continue
		}
		name := s.Name()
		if name == "" {
			errs = append(errs, fmt.Errorf("source %d has no name", i))
		} else if first, taken := names[name]; taken {
			errs = append(errs, fmt.Errorf("sources %d and %d have the same name %q", first, i, name))
		} else {
			names[name] = i
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pod config mux: %w", err)
	}
	return &Mux{
		logger:    opts.Logger,
		sources:   append([]Source(nil), opts.Sources...),
		rejected:  opts.Rejected,
		changes:   make(chan Change),
		dirty:     make(chan struct{}, 1),
		pending:   make([]*snapshot, len(opts.Sources)),
		announced: make([]bool, len(opts.Sources)),
	}, nil
}

// Changes is the stream, for one reader. It has no buffer: while the reader is
// busy, what the sources say meanwhile is folded into the next batch. A batch is
// a run of changes ordered by [Op]; once its first change was taken it is
// finished before newer snapshots count. The channel is closed when
// [Mux.Run] returns.
func (m *Mux) Changes() <-chan Change { return m.changes }

// AllSeen reports whether every source has delivered a snapshot and the reader
// has taken all the changes that came of it. Only then does the absence of a pod
// mean that it is not wanted. A reader that asks between two receives gets no
// early yes: everything it was told of it has also handled.
func (m *Mux) AllSeen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seen := range m.announced {
		if !seen {
			return false
		}
	}
	return true
}

// Run runs the sources and delivers their changes until ctx ends; then it waits
// for the sources and returns nil. A source that fails is run again after a
// back-off of 1 s, doubling to 1 min; the others do not notice. A second call
// returns [ErrRunTwice].
func (m *Mux) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return ErrRunTwice
	}
	defer close(m.changes)
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, s := range m.sources {
		wg.Go(func() {
			supervise(ctx, m.logger.WithValues("source", s.Name()), s, func(pods []*v1.Pod) { m.offer(i, pods) })
		})
	}
	m.deliver(ctx)
	return nil
}

// offer stores a snapshot and wakes the delivery.
func (m *Mux) offer(source int, pods []*v1.Pod) {
	m.mu.Lock()
	m.pending[source] = &snapshot{pods}
	m.mu.Unlock()
	select {
	case m.dirty <- struct{}{}:
	default: // a token is there already
	}
}

// deliver is the one goroutine that owns what the reader was told.
func (m *Mux) deliver(ctx context.Context) {
	d := newDelivery(m.sources)
	for {
		var next Change
		var out chan Change // nil, which blocks, while there is nothing to say
		if len(d.batch) > 0 {
			next, out = d.batch[0].Change, m.changes
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			d.advance()
			if len(d.batch) > 0 {
				continue
			}
			m.announce(d.fresh)
		case <-m.dirty:
			if d.begun {
				continue // planned anew when the batch is through
			}
		}
		for _, r := range d.plan(m.take(), time.Now()) {
			m.reject(r)
		}
	}
}

// take empties the pending snapshots into a map by source.
func (m *Mux) take() map[int][]*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := map[int][]*v1.Pod{}
	for i, s := range m.pending {
		if s != nil {
			taken[i], m.pending[i] = s.pods, nil
		}
	}
	return taken
}

func (m *Mux) announce(sources []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range sources {
		m.announced[i] = true
	}
}

func (m *Mux) reject(r Rejection) {
	m.logger.Error(r.Err, "Pod held back", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "uid", r.Pod.UID, "source", r.Source)
	if m.rejected != nil {
		m.rejected(r)
	}
}

// delivery is the state behind the stream, without goroutines: what each source
// says, what the reader was told, and the batch that leads from one to the
// other.
type delivery struct {
	origins []*origin
	union   union
	// told is what the reader knows, by UID: every step that it took, applied.
	told map[types.UID]*entry
	// batch is what is left to be told. begun says that part of it was.
	batch []step
	begun bool
	// fresh are the sources whose first snapshot the batch covers.
	fresh []int
	// announced sources need no further sign that they have been seen.
	announced []bool
}

func newDelivery(sources []Source) *delivery {
	d := &delivery{told: map[types.UID]*entry{}, announced: make([]bool, len(sources))}
	for i, s := range sources {
		d.origins = append(d.origins, newOrigin(i, s.Name()))
	}
	return d
}

// plan takes new snapshots in and replaces the batch, which must not have begun.
func (d *delivery) plan(snapshots map[int][]*v1.Pod, now time.Time) []Rejection {
	var rejections []Rejection
	for i, o := range d.origins {
		if pods, ok := snapshots[i]; ok {
			rejections = append(rejections, o.take(pods, now)...)
		}
	}
	want, more := d.union.merge(d.origins)
	rejections = append(rejections, more...)
	d.batch = diff(d.told, want)
	d.fresh = d.fresh[:0]
	for i, o := range d.origins {
		if o.seen && !d.announced[i] {
			d.fresh = append(d.fresh, i)
			d.batch = withSign(d.batch, o.name)
		}
	}
	return rejections
}

// advance notes that the reader took the first step of the batch.
func (d *delivery) advance() {
	d.batch[0].apply(d.told)
	d.batch[0] = step{}
	d.batch = d.batch[1:]
	d.begun = len(d.batch) > 0
	if !d.begun {
		for _, i := range d.fresh {
			d.announced[i] = true
		}
	}
}

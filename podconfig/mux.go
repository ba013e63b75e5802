package podconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var (
	_ PodConfig      = (*Mux)(nil)
	_ SourceRegistry = (*Mux)(nil)
	_ Freezer        = (*Mux)(nil)
)

// Errors of a [Mux].
var (
	// ErrMuxEnded is returned by [Mux.Add] when [Mux.Run] has ended, or is about to.
	ErrMuxEnded = errors.New("the pod config mux has ended")
)

// Options are the settings of a [Mux]. The zero value is valid.
type Options struct {
	// NodeName is the name of the node that the pods run on. Sources that make pods of
	// manifests require it; see [Sink].
	NodeName string
	// Logger; the zero value discards.
	Logger logr.Logger
	// Sources of pods from the beginning; see also [Mux.Add]. Their names must
	// differ. Where two offer the same new pod at the same moment, one of them gets
	// it, as a rule the one that stands first here.
	Sources []Source
	// Restore, if not nil, returns the pods that an earlier life of the agent took
	// from the stream and that were not removed, so that they run though their
	// sources cannot be reached. [Mux.Run] calls it once, before it runs the sources.
	// Each pod is as it was in the stream: its annotation kubernetes.io/config.source
	// names its source, and kubernetes.io/config.seen, if it is there, stays. The
	// pods of sources that are not registered are left out.
	//
	// A restored pod comes as [Restore], and counts until its source says which pods
	// it wants: those that it does not name are removed then, changed ones updated,
	// and of the same ones nothing is said. See [SourceRestorer] for who wants to say more of them.
	Restore func(ctx context.Context) []*v1.Pod
	// Rejected, if not nil, is told of each pod that is held back, once for as long
	// as it is, as a rule to make an event of it. It runs in the goroutine of
	// [Mux.Run] and must not block.
	Rejected func(Rejection)
}

// PodConfig is the stream of the pods that should run on the node. [Mux] is the
// default; its methods document the contract. Implementations are safe for
// concurrent use. Optional interfaces: [SourceRegistry], [Freezer].
type PodConfig interface {
	// Run produces the changes until ctx ends, then closes the channel of Changes and
	// returns nil. A second call returns an error that wraps [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// Changes returns the stream of changes, for one reader.
	Changes() <-chan Change
	// AllSeen reports whether the reader has received the pods of all sources. Only
	// then does the absence of a pod mean that it is not wanted. It may become false
	// again when a source is added.
	AllSeen() bool
}

// SourceRegistry is an optional interface of a [PodConfig] whose sources may come
// and go.
type SourceRegistry interface {
	// Add registers a source, and runs it if the PodConfig runs.
	Add(Source) error
	// Remove removes the source of that name with its pods, and reports whether there
	// was one. It returns when the source's Run has returned.
	Remove(name string) bool
	// Sources returns the registered sources in the order in which they were added.
	Sources() []SourceState
}

// Freezer is an optional interface of a [PodConfig] that can stop at one snapshot.
type Freezer interface {
	// Freeze makes the PodConfig ignore everything that its sources deliver from now on.
	Freeze()
}

// Mux merges any number of sources into one ordered stream of changes. It is safe for
// concurrent use.
type Mux struct {
	nodeName string
	logger   logr.Logger
	restore  func(ctx context.Context) []*v1.Pod
	rejected func(Rejection)

	started atomic.Bool
	changes chan Change
	// dirty holds one token while something happened that was not taken in.
	dirty chan struct{}

	mu sync.Mutex
	// feeds are the registered sources; leaving those that were removed and whose
	// end the reader has not been told.
	feeds, leaving []*feed
	registered     uint64 // how many ever were
	// start runs a source; nil unless [Mux.Run] does. ended says that it did.
	start func(f *feed)
	ended bool
	// frozen says that nothing more is taken from the sources.
	frozen bool
}

// New returns a mux over the sources. It does nothing until it is run.
func New(opts Options) (*Mux, error) {
	m := &Mux{
		nodeName: opts.NodeName,
		logger:   opts.Logger,
		restore:  opts.Restore,
		rejected: opts.Rejected,
		changes:  make(chan Change),
		dirty:    make(chan struct{}, 1),
	}
	var errs []error
	for i, s := range opts.Sources {
		if err := m.Add(s); err != nil {
			errs = append(errs, fmt.Errorf("source %d: %w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pod config mux: %w", err)
	}
	return m, nil
}

// Add registers a source, and runs it if the mux runs. From then until its pods are
// known, [Mux.AllSeen] is false. Its name must not be that of another registered
// source. A source without which AllSeen is not to become true at all must be
// added before [Mux.Run] is called. The error is [ErrMuxEnded] or says what is wrong
// with the source.
func (m *Mux) Add(source Source) error {
	if source == nil {
		return errors.New("the source is nil")
	}
	name := source.Name()
	if name == "" {
		return errors.New("the source has no name")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return fmt.Errorf("adding source %q: %w", name, ErrMuxEnded)
	}
	if slices.ContainsFunc(m.feeds, func(f *feed) bool { return f.name == name }) {
		return fmt.Errorf("there is another source of the same name %q", name)
	}
	m.registered++
	f := &feed{mux: m, name: name, source: source, origin: newOrigin(m.registered, name)}
	m.feeds = append(m.feeds, f)
	if m.start != nil {
		m.start(f)
	}
	return nil
}

// Remove takes a source away: its pods are wanted no more, its Run is cancelled, and
// when Remove returns it has returned. Another source of the same name may be added
// then; of pods that it offers unchanged before the reader was told of their end,
// the reader hears nothing. The result is false if there is no such source. Remove
// must not be called by the source itself.
func (m *Mux) Remove(name string) bool {
	m.mu.Lock()
	i := slices.IndexFunc(m.feeds, func(f *feed) bool { return f.name == name })
	if i < 0 {
		m.mu.Unlock()
		return false
	}
	f := m.feeds[i]
	m.feeds = slices.Delete(m.feeds, i, i+1)
	m.leaving = append(m.leaving, f)
	m.mu.Unlock()
	m.wake()
	if f.cancel != nil { // it was started before it could be found, or never will be
		f.cancel()
		<-f.done
	}
	return true
}

// Freeze has the mux take nothing more from its sources, for who wants one snapshot.
func (m *Mux) Freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = true
}

// SourceState is what a [Mux] knows of a registered source.
type SourceState struct {
	Name string
	// Seen says that the source has said which pods it wants, and the reader has
	// taken all the changes that came of that.
	Seen bool
}

// Sources returns the registered sources in the order in which they were added.
func (m *Mux) Sources() []SourceState {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]SourceState, len(m.feeds))
	for i, f := range m.feeds {
		states[i] = SourceState{f.name, f.announced}
	}
	return states
}

// Changes is the stream, for one reader. It has no buffer: while the reader is
// busy, what the sources say meanwhile is folded into the next batch. A batch is
// a run of changes ordered by [Op]; once its first change was taken it is
// finished before newer news count. The channel is closed when [Mux.Run] returns.
func (m *Mux) Changes() <-chan Change { return m.changes }

// AllSeen reports whether every registered source has said which pods it wants, and
// the reader has taken all the changes that came of it, and of the removal of
// sources. Only then does the absence of a pod mean that it is not wanted. A reader
// that asks between two receives gets no early yes: everything it was told of it
// has also handled. A source that is added makes it false again.
func (m *Mux) AllSeen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leaving) == 0 && !slices.ContainsFunc(m.feeds, func(f *feed) bool { return !f.announced })
}

// Run runs the sources and delivers their changes until ctx ends; then it waits
// for the sources and returns nil. A source that fails is run again after a
// back-off of 1 s, doubling to 1 min; the others do not notice. A second call
// returns [runtime.ErrAlreadyRunning].
func (m *Mux) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	defer close(m.changes)
	d := newDelivery()
	if m.restore != nil {
		m.restoreInto(d, m.restore(ctx))
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	m.mu.Lock()
	m.start = func(f *feed) {
		ctx, cancel := context.WithCancel(ctx)
		f.cancel, f.done = cancel, make(chan struct{})
		wg.Go(func() {
			defer close(f.done)
			defer cancel()
			supervise(ctx, m.logger.WithValues("source", f.name), f.source, f)
		})
	}
	for _, f := range m.feeds {
		m.start(f)
	}
	m.mu.Unlock()
	m.deliver(ctx, d)

	m.mu.Lock()
	m.start, m.ended = nil, true // nothing is started during the wait
	m.mu.Unlock()
	return nil
}

func (m *Mux) restoreInto(d *delivery, pods []*v1.Pod) {
	m.mu.Lock()
	feeds := slices.Clone(m.feeds)
	m.mu.Unlock()
	origins := make([]*origin, len(feeds))
	for i, f := range feeds {
		origins[i] = f.origin
		if r, ok := f.source.(SourceRestorer); ok {
			r.Restored(cameFrom(pods, f.name))
		}
	}
	strays, rejections := d.restore(pods, origins, time.Now())
	for _, pod := range strays {
		m.logger.Info("Pod is not restored, because the source that it came from is not configured any more",
			"pod", runtime.RefOf(pod), "source", pod.Annotations[runtime.AnnotationConfigSource])
	}
	m.reject(rejections)
	m.wake()
}

func (m *Mux) wake() {
	select {
	case m.dirty <- struct{}{}:
	default: // a token is there already
	}
}

// deliver is the one goroutine that owns what the sources say and what the reader
// was told.
func (m *Mux) deliver(ctx context.Context, d *delivery) {
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
		case <-m.dirty:
			m.reject(d.absorb(m.take(), time.Now()))
		}
		if d.begun {
			continue // planned anew when the batch is through
		}
		d.plan()
		m.publish()
	}
}

// take empties the inbox.
func (m *Mux) take() inbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in inbox
	for _, f := range m.leaving {
		if !f.origin.left {
			in.left = append(in.left, f.origin)
		}
	}
	for _, f := range m.feeds {
		if !f.news.empty() {
			in.said = append(in.said, saying{f.origin, f.news})
			f.news = news{}
		}
	}
	return in
}

// publish lets everybody know what the reader was told of the sources.
func (m *Mux) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.feeds {
		f.announced = f.origin.announced
	}
	m.leaving = slices.DeleteFunc(m.leaving, func(f *feed) bool { return f.origin.left && f.origin.announced })
}

func (m *Mux) reject(rejections []Rejection) {
	for _, r := range rejections {
		m.logger.Error(r.Err, "Pod held back", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "uid", r.Pod.UID, "source", r.Source)
		if m.rejected != nil {
			m.rejected(r)
		}
	}
}

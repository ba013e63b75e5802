package podconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ErrMuxEnded is returned by [Mux.Add] when [Mux.Run] has ended, or is about to.
var ErrMuxEnded = errors.New("the pod config mux has ended")

// Options are the settings of a [Mux]. The zero value is valid.
type Options struct {
	// NodeName is the name of the node that the pods run on. Sources that make pods of
	// manifests require it, see [Sink]. Static pods without a node get it.
	NodeName string
	// Sources are the first sources; [Mux.Add] adds more. Their names must differ.
	Sources []Source
	// Restore, if not nil, returns the pods of an earlier run of the agent, so that they
	// run although their sources cannot be reached: all pods that were in the stream and
	// were not removed. [Mux.Run] calls it once, before it runs the sources.
	//
	// Each pod is as it was in the stream: the annotation kubernetes.io/config.source is
	// the name of its source; kubernetes.io/config.seen is kept if it is set. Pods of
	// sources that are not registered are left out. The others come as [Restore], and
	// stay until their source has delivered its first snapshot. See [Sink].Restored for
	// sources that need to keep them longer.
	Restore func(ctx context.Context) []*v1.Pod
	// StaticUID, if not nil, decides the UID of a static pod whose manifest has none, so that it keeps
	// its UID when another agent, or another version of this one, has started it. Package
	// podconfig/staticuid has one. It may wait until ctx ends. It is called by several goroutines.
	StaticUID func(ctx context.Context, pod StaticPod) types.UID
	// Observer receives a warning with kubelet's reason FailedValidation when a pod is rejected, by the Mux or by its
	// source, see [Sink], records of which pods are rejected and why, and the measurements [SourceCounts],
	// [SourceFailed], [ChangeDelivered] and [PodRejected]. The next snapshots with the same rejected pod cause no
	// further event. Its Logger has failures of sources and rejected pods.
	runtime.Observer
}

// Mux merges any number of sources into one ordered stream of changes. It is safe for
// concurrent use.
type Mux struct {
	nodeName string
	restore  func(ctx context.Context) []*v1.Pod
	uid      func(ctx context.Context, pod StaticPod) types.UID
	observer runtime.Observer
	// waitForObserver is called when Run ends.
	waitForObserver func()

	started atomic.Bool
	changes chan Change
	// wake holds one token when the inbox or the merger has changed since deliver has last
	// called next. Further tokens are dropped: one call of next is for all changes.
	wake flow.Signal
	// inbox may be locked when mu is held, not the other way round.
	inbox inbox

	mu     sync.Mutex // guards the merger with all its registrations, and the following
	merger *merger
	// start runs a source in its own goroutine. It is nil unless Run is running.
	start  func(r *registration)
	ended  bool         // Run has ended, or is about to
	counts SourceCounts // as last measured
	// afterUnlock has the measurements of counts, in their order.
	afterUnlock flow.Queue
}

var _ Config = (*Mux)(nil)

// New returns a mux with the sources. It does nothing until Run is called. The error names
// all sources that [Mux.Add] would refuse.
func New(opts Options) (*Mux, error) {
	if opts.StaticUID == nil {
		opts.StaticUID = SinkBase{}.StaticUID
	}
	m := &Mux{
		nodeName: opts.NodeName,
		restore:  opts.Restore,
		uid:      opts.StaticUID,
		changes:  make(chan Change),
		wake:     flow.NewSignal(),
		merger:   newMerger(opts.NodeName),
	}
	m.observer, m.waitForObserver = opts.Queued()
	var errs []error
	for i, s := range opts.Sources {
		if err := m.Add(s); err != nil {
			errs = append(errs, fmt.Errorf("source %d: %w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podconfig: %w", err)
	}
	return m, nil
}

// Add registers a source, and runs it if the mux runs. SourcesReady is false then until the
// source has been seen. An agent that must wait for a source at its start adds it before
// it calls [Mux.Run].
//
// It returns an error if the source has no name or the name of another registered
// source. It returns an error that wraps [ErrMuxEnded] when Run has ended.
func (m *Mux) Add(source Source) error {
	if source == nil {
		return errors.New("the source is nil")
	}
	name := source.Name()
	if name == "" {
		return errors.New("the source has no name")
	}
	defer m.afterUnlock.Run()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		return fmt.Errorf("adding source %q: %w", name, ErrMuxEnded)
	case m.merger.find(name) != nil:
		return fmt.Errorf("there is another source of the same name %q", name)
	}
	r := m.merger.add(name, source)
	m.countSources()
	if m.start != nil {
		m.start(r)
	}
	return nil
}

// Remove removes the source of that name with its pods, and reports whether there was
// one. It cancels the source's Run and returns after that has returned, so the source
// itself must not call Remove. SourcesReady is false then until the reader has received the
// changes.
//
// Another source of the same name may be added afterwards. If it delivers the same pods
// before the reader has received their removal, the reader receives no change for them.
func (m *Mux) Remove(name string) bool {
	m.mu.Lock()
	r := m.merger.find(name)
	if r == nil {
		m.mu.Unlock()
		return false
	}
	rejections := append(m.merge(), m.merger.remove(r)...)
	m.countSources()
	m.mu.Unlock()
	m.afterUnlock.Run()
	m.report(rejections)
	m.wake.Notify()
	if r.cancel != nil { // does not change any more: Run starts registered sources only
		r.cancel()
		<-r.done
	}
	return true
}

// Freeze implements [Config].
func (m *Mux) Freeze() { m.inbox.freeze() }

// Sources returns the registered sources in the order in which they were added.
func (m *Mux) Sources() []SourceState {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]SourceState, len(m.merger.sources))
	for i, r := range m.merger.sources {
		states[i] = SourceState{Name: r.name, Seen: r.seen, Rejected: m.merger.rejected(r)}
	}
	return states
}

// Changes returns the stream of changes, which has one reader. It has no buffer: while
// the reader is busy, further deliveries of the sources are merged into the next batch.
// A batch is a run of changes ordered by [Op]; when its first change was received, it is
// completed before a new one is made. The channel is closed when [Mux.Run] returns.
func (m *Mux) Changes() <-chan Change { return m.changes }

// SourcesReady reports whether every registered source has been seen, and the reader has also
// received all changes that followed from the removal of sources. While it is true, a pod
// that is not in the stream is not desired.
//
// SourcesReady becomes true some time after the reader has received the last change, never
// before. It becomes false again when a source is added or removed.
func (m *Mux) SourcesReady() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.merger.sourcesReady()
}

// Run runs the sources and delivers their changes until ctx ends. Then it waits for the
// sources and returns nil. A source that fails is run again after a back-off of 1 s that
// doubles up to 1 min. A second call returns an error that wraps
// [runtime.ErrAlreadyRunning].
func (m *Mux) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return fmt.Errorf("podconfig: %w", runtime.ErrAlreadyRunning)
	}
	defer m.waitForObserver()
	defer close(m.changes)
	var delayed []*registration
	if m.restore != nil {
		delayed = m.restorePods(m.restore(ctx))
	}

	var sources sync.WaitGroup
	defer flow.Wait(&sources, flow.Late, m.logLate)
	m.mu.Lock()
	m.start = func(r *registration) {
		ctx, cancel := context.WithCancel(ctx)
		r.cancel, r.done = cancel, make(chan struct{})
		sources.Go(func() {
			defer close(r.done)
			defer cancel()
			m.supervise(ctx, r)
		})
	}
	for _, r := range m.merger.sources {
		m.start(r)
	}
	m.mu.Unlock()
	for _, r := range delayed {
		sources.Go(func() { m.restoreDelayed(ctx, r) })
	}

	m.deliver(ctx)

	m.mu.Lock()
	m.start, m.ended = nil, true // no source is started during the wait
	m.mu.Unlock()
	return nil
}

// logLate logs the sources that have not ended after Run should have ended.
func (m *Mux) logLate() {
	var late []string
	m.mu.Lock()
	for _, r := range m.merger.sources {
		select {
		case <-r.done:
		default:
			if r.done != nil {
				late = append(late, r.name)
			}
		}
	}
	m.mu.Unlock()
	for _, name := range late {
		m.observer.Logger.Error(nil, "The mux cannot stop: a source has not returned although its context has ended",
			"source", name)
	}
}

// restorePods adds the pods of an earlier run of the agent to the merger. It returns the sources that delay theirs.
func (m *Mux) restorePods(pods []*v1.Pod) (delayed []*registration) {
	m.mu.Lock()
	sources := slices.Clone(m.merger.sources)
	delayed, rejections := m.merger.restore(pods)
	m.mu.Unlock()
	m.report(rejections)
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		source := pod.Annotations[podspec.AnnotationConfigSource]
		if !slices.ContainsFunc(sources, func(r *registration) bool { return r.name == source }) {
			m.observer.Logger.Info(
				"Pod is not restored, because the source that it came from is not configured any more",
				"pod", runtime.RefOf(pod), "source", source)
		}
	}
	return delayed
}

// restoreDelayed adds the restored pods of a [RestoreDelayer] to the merger when its channel is closed.
func (m *Mux) restoreDelayed(ctx context.Context, r *registration) {
	select {
	case <-r.restoreAfter:
	case <-ctx.Done():
		return
	}
	m.mu.Lock()
	rejections := m.merger.restoreDelayed(r)
	m.mu.Unlock()
	m.report(rejections)
	m.wake.Notify()
}

// restoreAfter returns the channel of a [RestoreDelayer], and nil for another source.
func restoreAfter(s Source) <-chan struct{} {
	if d, ok := s.(RestoreDelayer); ok {
		return d.RestoreAfter()
	}
	return nil
}

// add adds a delivery to the inbox. It merges the inbox if it is full.
func (m *Mux) add(s *sink, d delivery) {
	first, full := m.inbox.add(s, d)
	if full {
		m.mu.Lock()
		rejections := m.merge()
		m.mu.Unlock()
		m.report(rejections)
	}
	if first || full {
		m.wake.Notify()
	}
}

// merge merges the inbox, and returns the pods that are newly rejected. The caller holds
// m.mu.
func (m *Mux) merge() []rejection {
	var rejections []rejection
	deliveries := m.inbox.take()
	for _, d := range deliveries {
		rejections = append(rejections, m.merger.merge(d)...)
	}
	m.inbox.recycle(deliveries)
	return rejections
}

// deliver delivers changes until ctx ends.
func (m *Mux) deliver(ctx context.Context) {
	for {
		next := m.next()
		var change Change
		var out chan Change // nil, which blocks, if there is no change
		if next != nil {
			change, out = next.complete(), m.changes
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case out <- change:
			m.mu.Lock()
			m.merger.received()
			m.mu.Unlock()
			m.observer.Measure.Emit(ChangeDelivered{change.Source, change.Op, len(change.Pods)})
		}
	}
}

// next merges the inbox, and returns the change that the reader is to receive next, or nil.
func (m *Mux) next() *batchedChange {
	m.mu.Lock()
	rejections := m.merge()
	next := m.merger.next()
	m.countSources()
	m.mu.Unlock()
	m.afterUnlock.Run()
	m.report(rejections)
	return next
}

// report reports rejected pods. The caller does not hold m.mu.
func (m *Mux) report(rejections []rejection) {
	for _, r := range rejections {
		m.reject(r.source.name, runtime.RefOf(r.pod), r.err)
	}
}

// reject reports a rejected pod; a zero pod is not known. The caller does not hold m.mu.
func (m *Mux) reject(source string, pod runtime.PodRef, err error) {
	logger := m.observer.Logger.WithValues("source", source)
	if p := (*runtime.PanicError)(nil); errors.As(err, &p) {
		logger = logger.WithValues("stack", string(p.Stack))
	}
	if pod == (runtime.PodRef{}) {
		logger.Error(err, "Manifest rejected")
		return
	}
	logger.Error(err, "Pod rejected", "pod", pod)
	m.observer.Measure.Emit(PodRejected{source})
	m.observer.Event.Emit(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: "FailedValidation",
		Message: err.Error(),
		Logged:  true})
	m.observer.Record.Emit(runtime.Record{
		Pod: pod, Stage: runtime.StageDecided, Kind: runtime.KindReject, Source: runtime.RecordSource(source),
		Message: err.Error(),
	})
}

// warn reports what a source ignores in the manifest of a pod.
func (m *Mux) warn(source string, pod runtime.PodRef, err error) {
	m.observer.Logger.Info("Something in a manifest is ignored", "source", source, "pod", pod, "problem", err.Error())
	m.observer.Event.Emit(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: "ManifestWarning",
		Message: err.Error(), Logged: true})
}

// countSources measures the numbers of sources after unlock, if they have changed. The caller holds m.mu.
func (m *Mux) countSources() {
	if counts := m.merger.counts(); counts != m.counts {
		m.counts = counts
		m.afterUnlock.Add(func() { m.observer.Measure.Emit(counts) })
	}
}

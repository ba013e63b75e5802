package eviction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Manager]. The zero value has no thresholds, and costs nothing.
type Options struct {
	// Thresholds are those of [Parse].
	Thresholds []Threshold
	// PressureTransitionPeriod is how long a condition of the node stays after the last reading below a threshold.
	// Default: 5 minutes.
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriod bounds the grace period of a pod that is evicted for a soft threshold, in seconds. If it is
	// negative, the pod has its own.
	MaxPodGracePeriod int64
	// EvictStatic is for a node without an API server, see [Rules].
	EvictStatic bool
}

// Manager reads the signals, and evicts pods while less is available than the thresholds require. It is a component in
// the life of pods: it refuses new ones while the node is short of a resource. Its methods are safe for concurrent use.
type Manager struct {
	sensor  Sensor
	meter   Meter
	opts    Options
	node    lifecycle.Node
	log     logr.Logger
	started atomic.Bool
	// pressure has the conditions of the node, a []v1.NodeConditionType that does not change.
	pressure atomic.Pointer[[]v1.NodeConditionType]
}

var (
	_ lifecycle.Joiner   = (*Manager)(nil)
	_ lifecycle.Admitter = (*Manager)(nil)
	_ lifecycle.Runner   = (*Manager)(nil)
)

// New returns a manager. It reads nothing before [Manager.Run].
func New(sensor Sensor, meter Meter, opts Options) (*Manager, error) {
	var errs []error
	if sensor == nil || meter == nil {
		errs = append(errs, errors.New("eviction: a Sensor and a Meter are required"))
	}
	for _, t := range opts.Thresholds {
		if !t.Signal.Valid() || t.GracePeriod < 0 {
			errs = append(errs, fmt.Errorf("eviction: threshold %s: there is no such signal, or its grace period %s "+
				"is negative", t, t.GracePeriod))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opts.Thresholds = slices.Clone(opts.Thresholds)
	if opts.PressureTransitionPeriod <= 0 {
		opts.PressureTransitionPeriod = 5 * time.Minute
	}
	m := &Manager{sensor: sensor, meter: meter, opts: opts}
	m.pressure.Store(&[]v1.NodeConditionType{})
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. The manager emits events about the node and about pods; the event of an eviction
// is the agent's. The membership of a cluster finds UnderPressure by cluster.Pressure.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log = node, node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "eviction" }

// Order implements [lifecycle.Ordered]: a pod that is refused for pressure preempts no others, and is given nothing.
func (*Manager) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"node", "topology"}} }

// UnderPressure reports whether the node has the condition: MemoryPressure, DiskPressure or PIDPressure.
func (m *Manager) UnderPressure(c v1.NodeConditionType) bool {
	return slices.Contains(*m.pressure.Load(), c)
}

// Run implements [lifecycle.Runner]. It reads and evicts until ctx ends, and then returns nil; evictions under way are
// continued by the agent. A second call returns an error that wraps [runtime.ErrAlreadyRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return fmt.Errorf("eviction: %w", runtime.ErrAlreadyRunning)
	}
	if len(m.opts.Thresholds) == 0 {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &run{
		Manager: m,
		woken:   make(chan struct{}, 1),
		results: make(chan *Result, len(conditions)), // there is one at most for each condition
		rules: Rules{
			Thresholds: m.opts.Thresholds, PressureTransitionPeriod: m.opts.PressureTransitionPeriod,
			MaxPodGracePeriod: m.opts.MaxPodGracePeriod, EvictStatic: m.opts.EvictStatic,
		},
	}
	defer r.jobs.Wait()
	defer cancel()
	r.jobs.Go(func() { r.watch(ctx) })
	r.loop(ctx)
	return nil
}

// run is the work of [Manager.Run]. All but its channels belongs to the loop.
type run struct {
	*Manager
	jobs    sync.WaitGroup
	woken   chan struct{}
	results chan *Result

	rules    Rules
	layoutAt time.Time // of the last attempt to read it
	state    State
	readings Readings
	// begun means that the last round has begun something, so that another one is due.
	begun bool
	// logged are the problems that were logged, by what they are about.
	logged map[string]string
}

// layoutPeriod is the time between two looks at the layout of the file systems.
const layoutPeriod = time.Minute

// layoutRetry is that time after one that has failed.
const layoutRetry = 10 * time.Second

// endPeriod is the time between two looks at the end of a victim.
const endPeriod = 100 * time.Millisecond

// watch waits for signals of the kernel.
func (r *run) watch(ctx context.Context) {
	err := runtime.Recover(func() error {
		return r.sensor.Watch(ctx, r.opts.Thresholds, func() {
			select {
			case r.woken <- struct{}{}:
			default: // there is one already
			}
		})
	})
	if err != nil && ctx.Err() == nil {
		r.log.Info("The kernel does not signal all that evictions depend on; what is available is read by time",
			"reason", err.Error())
	}
}

func (r *run) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var result *Result
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.woken:
		case result = <-r.results:
		}
		wait := r.round(ctx, result)
		for r.again() { // another condition may need something, too
			wait = r.round(ctx, nil)
		}
		timer.Reset(wait)
	}
}

// again is set by a round that has begun something.
func (r *run) again() bool {
	again := r.begun
	r.begun = false
	return again
}

// round reads, decides, and begins what was decided on. It returns the time until the next round.
func (r *run) round(ctx context.Context, result *Result) time.Duration {
	in := Input{Result: result}
	if uid := r.state.Victim(); uid != "" {
		st := r.node.State(uid)
		in.VictimEnded = !st.Known || st.Finished
	}
	r.readLayout(ctx)
	before := r.readings
	err := runtime.Recover(func() (err error) {
		r.readings, err = r.sensor.Read(ctx, r.opts.Thresholds)
		return err
	})
	if ctx.Err() != nil {
		return farPeriod
	}
	r.logOnce("readings", "Not all can be read that evictions depend on; thresholds without a reading are not met", err)
	in.Now, in.Readings = time.Now(), r.readings
	var d Decision
	r.state, d = Decide(r.state, r.rules, in)
	r.publish(d)
	r.report(d)
	switch d.Action {
	case Reclaim:
		r.reclaim(ctx, d)
	case Measure:
		r.measure(ctx, d)
	case Evict:
		r.evict(d)
	}
	wait := pace(r.opts.Thresholds, before, r.readings)
	if d.Next > 0 {
		wait = min(wait, d.Next)
	}
	if r.state.Victim() != "" {
		wait = min(wait, endPeriod)
	}
	return max(wait, time.Millisecond)
}

// readLayout reads the layout of the file systems if it is due.
func (r *run) readLayout(ctx context.Context) {
	if !r.layoutAt.IsZero() && time.Since(r.layoutAt) < layoutPeriod {
		return
	}
	if !slices.ContainsFunc(r.opts.Thresholds, func(t Threshold) bool { return t.Signal.pressure() == diskPressure }) {
		return
	}
	r.layoutAt = time.Now()
	var layout Layout
	err := runtime.Recover(func() (err error) {
		layout, err = r.sensor.Layout(ctx)
		return err
	})
	if err != nil { // the readings of imagefs fail, too
		r.layoutAt = r.layoutAt.Add(layoutRetry - layoutPeriod)
		r.log.V(1).Info("The file systems of the container runtime are not known; evictions go by the last that was "+
			"known, or by one for all", "reason", err.Error())
		return
	}
	r.rules.Layout = layout
}

// logOnce logs a problem once, until it is another one or over.
func (r *run) logOnce(about, message string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if r.logged[about] == text {
		return
	}
	if r.logged == nil {
		r.logged = map[string]string{}
	}
	r.logged[about] = text
	if text != "" {
		r.log.Info(message, "reason", text)
	}
}

// publish makes the conditions of a decision those of the node.
func (r *run) publish(d Decision) {
	old := *r.pressure.Load()
	if slices.Equal(old, d.Conditions) {
		return
	}
	list := slices.Clone(d.Conditions)
	r.pressure.Store(&list)
	readings := make([]string, 0, len(r.readings))
	for _, s := range slices.Sorted(maps.Keys(r.readings)) {
		readings = append(readings, fmt.Sprintf("%s=%s", s, amountText(s.Resource(), r.readings[s].Available)))
	}
	r.log.Info("The conditions of the node have changed", "from", old, "to", list, "readings", readings)
	r.node.NodeStatusChanged()
}

// pods returns the pods of which something may run, without their usage.
func (r *run) pods() (out []Pod) {
	for _, pod := range r.node.Pods() {
		if st := r.node.State(pod.UID); st.Known && !st.Stopped {
			out = append(out, Pod{Pod: pod, Ending: st.Ending})
		}
	}
	return out
}

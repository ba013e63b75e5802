package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The words of kubelet.
const (
	reasonRefused    = "NodeShutdown"
	messageRefused   = "Pod was rejected as the node is shutting down."
	eventReason      = "Shutdown" // the value of the constant events.NodeShutdown
	eventDetected    = "Shutdown manager detected shutdown event"
	eventCancelled   = "Shutdown manager detected shutdown cancellation"
	defaultDropInDir = "/etc/systemd/logind.conf.d"
	dropIn           = "99-kubelet.conf"
)

const (
	reconnectMin = time.Second // kubelet: dbusReconnectPeriod
	reconnectMax = 10 * time.Second
	callTimeout  = 25 * time.Second // the default of D-Bus
)

var (
	errShuttingDown = errors.New("node is shutting down") // kubelet's text
	errCancelled    = errors.New("the shutdown was cancelled")
	errLost         = errors.New("the connection to logind is lost")
)

// Shutdown is the measurement of the times of the latest shutdown, when they change and when the manager starts. The
// metrics are kubelet_graceful_shutdown_start_time_seconds and kubelet_graceful_shutdown_end_time_seconds.
type Shutdown struct {
	Start time.Time
	// End is zero while the shutdown is under way.
	End time.Time
}

// IsMeasurement implements [runtime.Measurement].
func (Shutdown) IsMeasurement() {}

// Options are the options of [New]. The zero value is usable.
type Options struct {
	// DropInDir is the directory of logind's configuration in which the delay of the machine is raised.
	// Default: /etc/systemd/logind.conf.d.
	DropInDir string
	// StateDir is the directory of the file graceful_node_shutdown_state, in kubelet's format. If empty, none
	// is written.
	StateDir string
}

// Manager ends the pods of the node before the machine shuts down. It is a component of an agent: it refuses
// pods while a shutdown is under way. Its methods are safe for concurrent use.
type Manager struct {
	periods Periods
	logind  Logind
	opts    Options
	node    lifecycle.Node
	log     logr.Logger
	running atomic.Bool
	closed  atomic.Bool // whether a shutdown is under way, for Admit and NodeReady

	// The following belong to the goroutine of Run.
	session Session
	delay   time.Duration  // how long the machine waits
	ending  *ending        // the shutdown under way; nil: none
	said    map[int]string // the last error of each problem that was logged

	mu   sync.Mutex
	lock io.Closer // nil: none is held
}

// ending is a shutdown that is under way, also when all pods have ended.
type ending struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing of it runs any more
}

var (
	_ lifecycle.Joiner   = (*Manager)(nil)
	_ lifecycle.Admitter = (*Manager)(nil)
	_ lifecycle.Runner   = (*Manager)(nil)
)

// New returns a manager. The periods are limited, and not empty. The error joins what is wrong.
func New(periods Periods, logind Logind, opts Options) (*Manager, error) {
	var errs []error
	if err := periods.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(periods) == 0 || periods.Total() == NoLimit {
		errs = append(errs, errors.New("there must be periods, all of them limited"))
	}
	if logind == nil {
		errs = append(errs, errors.New("no logind"))
	}
	if opts.DropInDir == "" {
		opts.DropInDir = defaultDropInDir
	}
	if !filepath.IsAbs(opts.DropInDir) {
		errs = append(errs, fmt.Errorf("DropInDir %q: must be an absolute path", opts.DropInDir))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("shutdown: %w", err)
	}
	m := &Manager{periods: periods, logind: logind, opts: opts, said: map[int]string{}}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner].
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log = node, node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (*Manager) Name() string { return "graceful shutdown" }

// Order implements [lifecycle.Ordered]: a pod that is refused for a shutdown preempts no others, and is given nothing.
func (*Manager) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"node", "topology"}} }

// Admit implements [lifecycle.Admitter]: it refuses all pods while a shutdown is under way.
func (m *Manager) Admit(lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if m.closed.Load() {
		return lifecycle.AdmitResponse{}, lifecycle.Refuse(reasonRefused, messageRefused)
	}
	return lifecycle.AdmitResponse{}, nil
}

// NodeReady returns an error while a shutdown is under way. It implements [lifecycle.NodeReadyChecker].
func (m *Manager) NodeReady() error {
	if m.closed.Load() {
		return errShuttingDown
	}
	return nil
}

// Run delays shutdowns of the machine, and ends the pods before one, until ctx ends; then it returns nil. Without
// logind it logs that once, and tries again. A second call returns an error that wraps
// [runtime.ErrAlreadyRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return fmt.Errorf("shutdown: %w", runtime.ErrAlreadyRunning)
	}
	m.loadState()
	defer m.release()
	defer func() { m.stop(context.Cause(ctx)) }()
	flow.Backoff{Min: reconnectMin, Max: reconnectMax}.Repeat(ctx, func() error { return m.runSession(ctx) },
		func(err error, _ time.Duration) {
			m.say(problemLogind, err, "Machine cannot be watched for shutdowns; trying again. Without systemd-logind, "+
				"pods do not end before a shutdown")
		})
	return nil
}

// runSession connects, and handles signals until the connection is lost. It returns nil only when ctx has ended.
func (m *Manager) runSession(ctx context.Context) (err error) {
	session, err := within(ctx, m.logind.Connect)
	if err != nil {
		return fmt.Errorf("connecting to logind: %w", err)
	}
	m.session = session
	defer func() { _ = session.Close() }()
	if err := m.sync(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case signal, ok := <-session.Signals():
			if !ok {
				return errLost
			}
			if err := m.handle(ctx, signal); err != nil {
				return err
			}
		}
	}
}

func (m *Manager) handle(ctx context.Context, signal Signal) error {
	switch signal {
	case SignalShutdown:
		m.begin(ctx)
	case SignalCancelled:
		return m.cancelled(ctx)
	case SignalRestarted: // it holds the lock that it has held before, and has forgotten a shutdown
		m.log.Info("logind was restarted")
		return m.sync(ctx)
	}
	return nil
}

// sync brings the manager in line with the state of logind, after signals may have been missed.
func (m *Manager) sync(ctx context.Context) error {
	shuttingDown, err := within(ctx, m.session.ShuttingDown)
	switch {
	case err != nil:
		return fmt.Errorf("asking logind whether the machine is shutting down: %w", err)
	case shuttingDown: // no lock is given any more
		m.begin(ctx)
		return nil
	case m.ending != nil:
		return m.cancelled(ctx)
	}
	return m.inhibit(ctx)
}

// inhibit takes a lock, releases the one before, and raises the delay of the machine.
func (m *Manager) inhibit(ctx context.Context) error {
	lock, err := within(ctx, m.session.Inhibit)
	if err != nil {
		return fmt.Errorf("delaying shutdowns of the machine: %w", err)
	}
	m.replaceLock(lock)
	if m.delay, err = m.raiseDelay(ctx); err != nil {
		return err
	}
	m.said[problemLogind] = ""
	m.log.Info("Shutdowns of the machine wait until the pods have ended", "needed", m.periods.Total(),
		"atMost", m.delay)
	return nil
}

// begin begins a shutdown, unless one is under way.
func (m *Manager) begin(ctx context.Context) {
	if m.ending != nil {
		return
	}
	periods := m.periods
	if m.delay > 0 { // 0: it is not known, since the shutdown began before the agent
		periods = periods.Within(m.delay)
	}
	m.log.Info("Machine is shutting down; pods end in the order of their priorities", "atMost", periods.Total())
	m.set(true, eventDetected)
	ctx, cancel := context.WithCancelCause(ctx)
	e := &ending{cancel: cancel, done: make(chan struct{})}
	m.ending = e
	go func() {
		defer close(e.done)
		defer cancel(nil)
		m.end(ctx, periods)
	}()
}

// end ends the pods, and releases the lock unless ctx ends before.
func (m *Manager) end(ctx context.Context, periods Periods) {
	start := time.Now()
	m.storeState(state{StartTime: start})
	var left []*v1.Pod
	err := runtime.Recover(func() (err error) {
		left, err = End(ctx, m.node, periods)
		return err
	})
	m.storeState(state{StartTime: start, EndTime: time.Now()})
	if ctx.Err() != nil {
		return // the shutdown was cancelled, or the agent stops
	}
	if err != nil {
		m.log.Error(err, "Not all pods could be ended before the shutdown")
	}
	m.log.Info("Pods have ended; the machine shuts down now", "after", time.Since(start), "left", refs(left))
	m.release()
}

// cancelled takes a shutdown back: pods that were not told to end go on.
func (m *Manager) cancelled(ctx context.Context) error {
	if m.ending != nil {
		m.log.Info("Shutdown of the machine was cancelled; pods that have not ended go on")
		m.stop(errCancelled)
		m.set(false, eventCancelled)
	}
	return m.inhibit(ctx)
}

// stop stops ending pods.
func (m *Manager) stop(cause error) {
	if m.ending == nil {
		return
	}
	m.ending.cancel(cause)
	<-m.ending.done
	m.ending = nil
}

// set sets whether a shutdown is under way, and reports it.
func (m *Manager) set(closed bool, message string) {
	m.closed.Store(closed)
	m.node.NodeStatusChanged()
	m.node.Event(runtime.Event{Type: v1.EventTypeNormal, Reason: eventReason, Message: message})
}

func (m *Manager) replaceLock(lock io.Closer) {
	m.mu.Lock()
	old := m.lock
	m.lock = lock
	m.mu.Unlock()
	if old != nil {
		if err := old.Close(); err != nil {
			m.log.Error(err, "Lock of logind cannot be closed")
		}
	}
}

func (m *Manager) release() { m.replaceLock(nil) }

// The problems that are logged once.
const (
	problemLogind = iota
	problemDelay
)

// say logs the error of a problem, unless it was the last one of the problem.
func (m *Manager) say(problem int, err error, message string) {
	if text := err.Error(); m.said[problem] != text {
		m.said[problem] = text
		m.log.Error(err, message)
	}
}

// within makes a call of logind that ends after callTimeout.
func within[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

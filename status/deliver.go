package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// hangGrace is the time that a call of the sink has for returning after its
// deadline.
const hangGrace = time.Second

// refusedMin and refusedMax bound the back-off of a status that the sink refuses: its receiver may change.
const (
	refusedMin = 2 * time.Second
	refusedMax = 5 * time.Minute
)

// urgentPeriod is the least time between two changes of readiness of a pod that are urgent: a probe can
// succeed and fail in turn each second, and the statuses of such pods would come before those of
// others for ever.
const urgentPeriod = 10 * time.Second

// urgent reports whether others wait for a change of the status: of readiness, or to a final
// phase. last is when a change of the pod was urgent last.
func urgent(from, to *v1.PodStatus, last, now time.Time) bool {
	return podspec.IsPhaseTerminal(from.Phase) != podspec.IsPhaseTerminal(to.Phase) ||
		isTrue(from.Conditions, v1.PodReady) != isTrue(to.Conditions, v1.PodReady) &&
			now.Sub(last).Abs() >= urgentPeriod
}

// Run implements [Manager]. Statuses that are undelivered when ctx ends stay
// undelivered.
func (m *Store) Run(ctx context.Context) error {
	m.mu.Lock()
	again := m.started
	m.started = true
	m.mu.Unlock()
	if again {
		return fmt.Errorf("status: %w", runtime.ErrAlreadyRunning)
	}
	defer m.waitForObserver()
	if m.sink == nil {
		<-ctx.Done()
		return nil
	}

	var calls sync.WaitGroup
	defer m.join(&calls)
	calls.Go(func() {
		if err := runtime.Recover(func() error { m.sink.WatchReceiver(ctx, m.redeliver); return nil }); err != nil {
			m.log.Error(err, "Callback has panicked", "callback", "Sink.WatchReceiver")
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, next := m.step(time.Now())
		for _, d := range due {
			calls.Go(func() {
				result, err := m.deliver(ctx, d)
				m.done(d, result, err, time.Now())
			})
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
	return nil
}

// join waits for all calls, and logs those that do not return soon.
func (m *Store) join(calls *sync.WaitGroup) {
	flow.Wait(calls, hangGrace, func() {
		m.mu.Lock()
		defer m.unlock()
		const message = "The status manager cannot stop: the sink has not returned although its context has ended"
		if m.calls.calls+len(m.calls.hung) == 0 {
			m.afterUnlock.Add(func() { m.log.Error(nil, message, "call", "WatchReceiver") })
		}
		for _, r := range m.pods {
			if since := r.since; r.stage == calling || r.stage == hanging {
				m.afterUnlock.Add(func() { m.log.Error(nil, message, "pod", r.ref, "since", since) })
			}
		}
	})
}

// delivery is one call of the sink: Deliver, or PodGone if end is true.
type delivery struct {
	r       *entry
	i       *incarnation
	end     bool
	pod     *v1.Pod
	status  *v1.PodStatus
	version uint64
	// changed is the time of the first change that the call delivers, zero if the sink has requested
	// the call.
	changed time.Time
}

// deliver makes the call, with its deadline.
func (m *Store) deliver(ctx context.Context, d *delivery) (result Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	err = runtime.Recover(func() (err error) {
		if d.end {
			return m.sink.PodGone(ctx, d.r.ref, d.status)
		}
		result, err = m.sink.Deliver(ctx, d.pod, *d.status)
		return err
	})
	return result, err
}

// step handles the timers that have fired, and returns the calls that are to be made now, and the time of the next
// timer, zero if there is none. It logs calls that hang from now on.
func (m *Store) step(now time.Time) (due []*delivery, next time.Time) {
	m.mu.Lock()
	defer m.unlock()
	hung := m.calls.expire(now)
	if hanging := len(m.calls.hung); len(hung) > 0 {
		for _, r := range hung {
			since := r.since
			m.afterUnlock.Add(func() {
				m.log.Error(nil, "Delivery hangs: the sink has not returned although its deadline has passed; the "+
					"pod waits, others go on",
					"pod", r.ref, "since", since, "timeout", m.timeout, "hanging", hanging)
			})
		}
		m.measured(DeliveriesHanging{hanging})
	}
	for r := m.calls.next(now, now.Add(m.timeout+hangGrace)); r != nil; r = m.calls.next(now,
		now.Add(m.timeout+hangGrace)) {
		i := r.due()
		due = append(due, &delivery{r: r, i: i, end: !i.undelivered(), pod: i.pod, status: i.out, version: i.version,
			changed: i.changed})
		i.changed = time.Time{}
	}
	return due, m.calls.nextTimer()
}

// done handles the result of a call.
func (m *Store) done(d *delivery, result Result, err error, now time.Time) {
	m.mu.Lock()
	defer m.unlock()
	defer m.wake.Notify()

	r, took := d.r, now.Sub(d.r.since)
	hung := r.stage == hanging
	m.calls.returned(r)
	if hanging := len(m.calls.hung); hung {
		m.afterUnlock.Add(func() { m.log.Info("Delivery that hung has returned", "pod", r.ref, "after", took) })
		m.measured(DeliveriesHanging{hanging})
	}
	r.slow = took >= m.timeout
	if err != nil && !errors.Is(err, ErrGone) {
		m.failed(d, err, now)
		return
	}
	if err == nil && result.Later == 0 {
		m.calls.succeeded(r, now)
	}
	r.failures, r.refused = 0, false
	switch {
	case d.end && r.gone == d.i:
		r.gone = nil
	case d.end: // a later pod of the UID is gone meanwhile, and its end is due
	case err != nil:
		m.afterUnlock.Add(func() {
			m.log.V(2).Info("The sink has no such pod, its status is not delivered", "pod", r.ref)
		})
		d.i.delivered = d.version
	case result.Later > 0 && d.i == r.gone:
		d.i.delivered = d.version // PodGone has it, too
	case result.Later > 0:
		d.undelivered()
		if d.version == d.i.version {
			m.calls.wait(r, deferred, now.Add(result.Later))
			return
		}
	default:
		d.i.delivered = d.version
		if !d.changed.IsZero() {
			m.measured(Delivered{now.Sub(d.changed)})
		}
		if d.i.starting && allStarted(d.status) {
			d.i.starting = false
			m.measured(StartDelivered{Pod: d.pod, Status: d.status, At: now})
		}
	}
	r.urgent = r.urgent && d.i.undelivered()
	m.settle(r)
}

// undelivered records that what the call was to deliver is still due.
func (d *delivery) undelivered() {
	if !d.changed.IsZero() {
		d.i.changed = d.changed
	}
	d.r.urgent = d.r.urgent || d.r.calledUrgent
}

// failed handles a failed call, or one that the sink refuses. The last status of a pod that is gone is
// given up, any other call is repeated.
func (m *Store) failed(d *delivery, err error, now time.Time) {
	m.measured(DeliveryFailed{})
	r, refused := d.r, errors.Is(err, ErrRefused)
	if r.refused != refused {
		r.failures, r.refused = 0, refused
	}
	r.failures++
	d.undelivered()
	failures, took := r.failures, now.Sub(r.since)
	log := func(message string, more ...any) {
		values := append(more, "pod", r.ref, "took", took, "failures", failures)
		m.afterUnlock.Add(func() {
			if refused && failures > 1 { // an error of the log once
				m.log.V(2).Info(message, append(values, "err", err.Error())...)
				return
			}
			m.log.Error(err, message, values...)
		})
	}
	givenUp := !d.end && d.i == r.gone && d.version == d.i.version
	if givenUp {
		log("Last status of a pod that is gone was not delivered")
		d.i.delivered = d.version
	}
	// requested means that the sink has requested a delivery during the call: what it has refused may be possible by
	// now.
	requested := d.version != d.i.version
	if r.due() == nil || refused && (r.fresh || requested) {
		r.failures, r.refused = 0, false
		m.settle(r)
		return
	}
	if refused {
		after := flow.Backoff{Min: refusedMin, Max: refusedMax}.After(failures)
		m.calls.wait(r, deferred, now.Add(after))
		log("The sink refuses the status of a pod; it is delivered again when it changes, and after a while",
			"after", after)
		return
	}
	delay, opened := m.calls.failed(r, now)
	if opened {
		m.afterUnlock.Add(func() {
			m.log.Info("The sink fails for several pods: until it succeeds, one of them is tried every few seconds")
		})
	}
	switch {
	case d.end:
		log("End of a pod was not delivered, trying again", "after", delay)
	case !givenUp:
		log("Status was not delivered, trying again", "after", delay)
	}
}

// Healthy implements [Manager].
func (m *Store) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls.hung) == 0 {
		return nil
	}
	list := make([]*entry, 0, len(m.calls.hung))
	for r := range m.calls.hung {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.ref.UID, b.ref.UID))
	})
	const most = 10 // so that the error stays readable
	var text []string
	for _, r := range list[:min(most, len(list))] {
		text = append(text, fmt.Sprintf("pod %s since %s", r.ref, r.since.Format(time.RFC3339)))
	}
	if n := len(list) - len(text); n > 0 {
		text = append(text, fmt.Sprintf("%d more", n))
	}
	return fmt.Errorf("status: deliveries hang, the sink has not returned within %v: %s", m.timeout,
		strings.Join(text, ", "))
}

package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Reading is an amount as it was read.
type Reading struct {
	Available, Capacity int64
	// At is when the reading began. Like all times of this package it has Go's monotonic clock, so that a clock that is
	// set does not shorten a grace period.
	At time.Time
}

// Readings are the readings by signal. A signal that cannot be read is missing: it meets no threshold.
type Readings map[Signal]Reading

// Rules are what [Decide] decides by. They do not change in the life of a [State].
type Rules struct {
	// Thresholds are in the order in which they are defended, as [Parse] returns them.
	Thresholds []Threshold
	Layout     Layout
	// PressureTransitionPeriod is how long a condition of the node stays after the last reading below a threshold.
	PressureTransitionPeriod time.Duration
	// EvictStatic means that static pods may be evicted if they have no priority class of the system. It is for a node
	// without an API server, on which all pods are static. kubelet never evicts static pods.
	EvictStatic bool
	// MaxPodGracePeriod bounds the grace period of a pod that is evicted for a soft threshold, in seconds. If it is
	// negative, the pod has its own.
	MaxPodGracePeriod int64
}

// Times of the defence.
const (
	// hardGrace is the grace period of a pod that is evicted for a hard threshold, in seconds (kubelet:
	// immediateEvictionGracePeriodSeconds).
	hardGrace = 1
	// cleanupTime is how long the clean-up of a pod may take that has ended until another one is evicted
	// (kubelet: podCleanupTimeout).
	cleanupTime = 30 * time.Second
	// leastEndTime is how long the end of a pod may take at least (kubelet: killPodNow).
	leastEndTime = 10 * time.Second
	// othersEndTime is how long pods that end anyway are waited for if their end is enough.
	othersEndTime = 10 * time.Second
	// retryPeriod is the time until a condition is tried again for which nothing could be done.
	retryPeriod = 10 * time.Second
)

// Action is what the caller of [Decide] does next.
type Action int

const (
	// Nothing is to be done before the next reading.
	Nothing Action = iota
	// Reclaim what no pod uses: dead containers or images, or both. The result is to be in a later Input.
	Reclaim
	// Measure the usage of all pods. The result is to be in a later Input, with readings that were made after it.
	Measure
	// Evict the victim.
	Evict
	// Wait for the end of pods.
	Wait
)

// Input is the input of [Decide].
type Input struct {
	// Now is not before any time in Readings.
	Now      time.Time
	Readings Readings
	// Result is the result of an earlier decision to reclaim or to measure. nil: there is none yet.
	Result *Result
	// VictimEnded means that nothing of the last victim runs any more, and its volumes and containers are
	// removed. Readings were made after that.
	VictimEnded bool
}

// Result is what became of a decision to [Reclaim] or to [Measure].
type Result struct {
	// Condition is that of the decision.
	Condition v1.NodeConditionType
	// Pods are all pods of the node that may run, if it was to measure.
	Pods []Pod
	// At is when it was complete.
	At time.Time
}

// Decision is the output of [Decide].
type Decision struct {
	Action Action
	// Condition is the one that the action is for. It is empty without one.
	Condition v1.NodeConditionType
	// Threshold and Reading are the cause of the action.
	Threshold Threshold
	Reading   Reading
	// DeadContainers and UnusedImages are what is to be reclaimed.
	DeadContainers, UnusedImages bool
	// Victim is the pod to evict, with Message, in the grace period in seconds. Annotations are kubelet's of the event:
	// starved_resource, offending_containers, offending_containers_usage, offending_pod and offending_pod_usage.
	Victim      *Pod
	Message     string
	Annotations map[string]string
	GracePeriod int64
	// NoVictim means that a threshold is met and no pod may be evicted.
	NoVictim bool
	// Conditions are those of the node, of MemoryPressure, DiskPressure and PIDPressure.
	Conditions []v1.NodeConditionType
	// Outcome is that of the last eviction, in the decision in which it is known.
	Outcome *Outcome
	// Next is the time after which the decision can be another one even if all readings are the same; 0: none.
	Next time.Duration
}

// Outcome is what an eviction has led to.
type Outcome struct {
	Pod       *v1.Pod
	Threshold Threshold
	// Before and After are the readings of the signal. Without one after the end, After is zero.
	Before, After Reading
	// Took is the time from the decision on. Ended is false if it was given up.
	Took  time.Duration
	Ended bool
}

// Freed returns how much more is available than before. It is negative if others have used more meanwhile.
func (o *Outcome) Freed() int64 {
	if o.After.At.IsZero() {
		return 0
	}
	return o.After.Available - o.Before.Available
}

// State is what [Decide] remembers. The zero value is the state of a new agent. A State is a value: Decide does not
// change the one that it is given.
type State struct {
	tracks []track
	rooms  [len(conditions)]room
	victim *victim // does not change
}

// track is what is known of a threshold.
type track struct {
	// since is when the threshold was first met; zero: it is not.
	since time.Time
	// due means that it was met for its grace period, and since then MinReclaim was not reached.
	due bool
}

// room is the defence of the resources of one condition.
type room struct {
	// lastMet is when a threshold was last met; zero: never.
	lastMet time.Time
	step    step
	// at is when the step was reached.
	at time.Time
	// othersSince is since when pods are waited for that end anyway; zero: none are.
	othersSince time.Time
	// retry is when the next attempt may begin; zero: at once.
	retry time.Time
}

// step is how far an attempt to free a resource is.
type step uint8

const (
	idle       step = iota
	reclaiming      // the result is missing
	reclaimed       // later readings decide whether that was enough
	measuring       // the result is missing
)

// victim is a pod that was evicted and has not ended yet.
type victim struct {
	pod       *v1.Pod
	threshold Threshold
	before    Reading
	// since is when it was decided, and until is when it is given up.
	since, until time.Time
}

// Victim returns the UID of the pod that was evicted and has not ended yet; "" if there is none.
func (s State) Victim() types.UID {
	if s.victim == nil {
		return ""
	}
	return s.victim.pod.UID
}

// Decide returns what to do about the readings. It is a pure function.
//
// The caller carries the action out and calls Decide again with new readings; after [Reclaim] and [Measure] at once,
// since other resources may need something meanwhile. A pod is evicted only by a second reading below the
// threshold, which was made after the usage of pods was measured.
func Decide(state State, rules Rules, in Input) (State, Decision) {
	d := decider{State: state, rules: rules, in: in}
	d.tracks = make([]track, len(rules.Thresholds))
	copy(d.tracks, state.tracks)
	d.observe()
	d.awaitVictim()
	d.takeResult()
	for pressure := range conditions {
		if d.out.Action != Nothing {
			break
		}
		d.act(pressure)
	}
	d.out.Conditions = d.conditions()
	return d.State, d.out
}

type decider struct {
	State
	rules Rules
	in    Input
	out   Decision
	// pods is the result of a measurement, of the condition with the index measured.
	pods     []Pod
	measured int
}

// next notes that the decision can be another one at a time.
func (d *decider) next(at time.Time) {
	wait := max(at.Sub(d.in.Now), time.Nanosecond)
	if d.out.Next == 0 || wait < d.out.Next {
		d.out.Next = wait
	}
}

// observe brings the tracks up to date.
func (d *decider) observe() {
	for i, t := range d.rules.Thresholds {
		tr := &d.tracks[i]
		r, ok := d.in.Readings[t.Signal]
		if !ok || r.Available >= t.need(r.Capacity, tr.due) {
			*tr = track{}
			continue
		}
		if tr.since.IsZero() {
			tr.since = d.in.Now
		}
		due := tr.since.Add(t.GracePeriod)
		if tr.due = tr.due || !due.After(d.in.Now); !tr.due {
			d.next(due)
		}
		d.rooms[t.Signal.pressure()].lastMet = d.in.Now
	}
}

// conditions returns the conditions of the node.
func (d *decider) conditions() (out []v1.NodeConditionType) {
	for pressure, c := range conditions {
		last := d.rooms[pressure].lastMet
		if last.IsZero() {
			continue
		}
		switch end := last.Add(d.rules.PressureTransitionPeriod); {
		case last.Equal(d.in.Now):
			out = append(out, c)
		case end.After(d.in.Now):
			out = append(out, c)
			d.next(end)
		}
	}
	return out
}

// awaitVictim waits for the end of the last victim.
func (d *decider) awaitVictim() {
	v := d.victim
	if v == nil {
		return
	}
	after, ok := d.in.Readings[v.threshold.Signal]
	fresh := ok && !after.At.Before(v.since)
	if d.in.Now.Before(v.until) && !(d.in.VictimEnded && (fresh || !ok)) {
		d.out.Action, d.out.Condition, d.out.Threshold, d.out.Reading = Wait, v.threshold.Signal.Condition(),
			v.threshold, v.before
		d.next(v.until)
		return
	}
	d.out.Outcome = &Outcome{Pod: v.pod, Threshold: v.threshold, Before: v.before, Took: d.in.Now.Sub(v.since),
		Ended: d.in.VictimEnded}
	if fresh {
		d.out.Outcome.After = after
	}
	d.victim = nil
	r := &d.rooms[v.threshold.Signal.pressure()]
	r.retry, r.othersSince = time.Time{}, time.Time{}
	if r.step == reclaimed || r.step == measuring { // what was known before is out of date
		r.step = idle
	}
}

// takeResult takes the result of an earlier action.
func (d *decider) takeResult() {
	if d.in.Result == nil {
		return
	}
	pressure := slices.Index(conditions[:], d.in.Result.Condition)
	if pressure < 0 {
		return
	}
	r := &d.rooms[pressure]
	switch r.step {
	case reclaiming:
		r.step, r.at = reclaimed, d.in.Result.At
	case measuring:
		r.step, d.pods, d.measured = idle, d.in.Result.Pods, pressure
		if d.pods == nil {
			d.pods = []Pod{}
		}
		r.at = d.in.Result.At
	}
}

// cause returns the first threshold of the condition that is due.
func (d *decider) cause(pressure int) (Threshold, Reading, bool) {
	for i, t := range d.rules.Thresholds {
		if d.tracks[i].due && t.Signal.pressure() == pressure {
			return t, d.in.Readings[t.Signal], true
		}
	}
	return Threshold{}, Reading{}, false
}

// act decides about the resources of a condition.
func (d *decider) act(pressure int) {
	r := &d.rooms[pressure]
	t, reading, due := d.cause(pressure)
	if !due {
		if r.step == reclaimed {
			r.step = idle
		}
		r.retry, r.othersSince = time.Time{}, time.Time{}
		return
	}
	do := func(a Action) {
		d.out.Action, d.out.Condition, d.out.Threshold, d.out.Reading = a, conditions[pressure], t, reading
		r.at = d.in.Now
	}
	switch {
	case r.step == reclaiming || r.step == measuring:
		return
	case d.pods != nil && d.measured == pressure:
		if !reading.At.Before(r.at) {
			d.choose(r, do, t, reading)
			return
		}
		r.step = measuring // the reading is not a second one
		do(Measure)
	case r.step == reclaimed:
		if reading.At.Before(r.at) {
			return // it does not show what was reclaimed
		}
		r.step = measuring
		do(Measure)
	case d.in.Now.Before(r.retry):
		d.next(r.retry)
	default:
		if d.out.DeadContainers, d.out.UnusedImages = reclaims(t.Signal, d.rules.Layout); d.out.DeadContainers ||
			d.out.UnusedImages {
			r.step = reclaiming
			do(Reclaim)
			return
		}
		r.step = measuring
		do(Measure)
	}
}

// choose chooses the victim.
func (d *decider) choose(r *room, do func(Action), t Threshold, reading Reading) {
	if d.othersSuffice(r, t, reading) {
		do(Wait)
		r.retry = r.at.Add(min(retryPeriod, time.Second))
		d.next(r.retry)
		return
	}
	order := Rank(t.Signal, d.rules, d.pods)
	if len(order) == 0 {
		d.out.NoVictim, d.out.Condition, d.out.Threshold, d.out.Reading = true, t.Signal.Condition(), t, reading
		r.retry = d.in.Now.Add(retryPeriod)
		d.next(r.retry)
		return
	}
	missing := t.need(reading.Capacity, true) - reading.Available
	counts := slices.IndexFunc(order, func(p Pod) bool {
		n, known := p.Usage.of(t.Signal, d.rules.Layout)
		return !known || n >= missing/negligible
	})
	v := order[max(0, counts)] // if the usage of none counts, the first one
	do(Evict)
	grace := int64(hardGrace)
	if !t.Hard() {
		grace = d.rules.grace(v.Pod)
	}
	d.out.Victim, d.out.GracePeriod = &v, grace
	d.out.Message, d.out.Annotations = message(t, reading, &v)
	end := max(leastEndTime, time.Duration(min(grace, maxGrace))*time.Second*3/2)
	d.victim = &victim{pod: v.Pod, threshold: t, before: reading, since: d.in.Now,
		until: d.in.Now.Add(end + cleanupTime)}
	d.next(d.victim.until)
}

// negligible is the part of what is missing below which the usage of a pod does not count as long as others can be
// evicted: its end changes little.
const negligible = 1000

// grace returns the grace period of a pod that is evicted for a soft threshold.
func (r *Rules) grace(pod *v1.Pod) int64 {
	own := pod.Spec.TerminationGracePeriodSeconds
	switch {
	case r.MaxPodGracePeriod < 0:
		return max(0, podspec.GracePeriod(pod))
	case own != nil:
		return max(0, min(r.MaxPodGracePeriod, *own))
	default:
		return r.MaxPodGracePeriod
	}
}

// maxGrace is about 30 years in seconds: a longer grace period has no end.
const maxGrace = 1_000_000_000

// othersSuffice reports whether the end of pods that end anyway frees enough.
func (d *decider) othersSuffice(r *room, t Threshold, reading Reading) bool {
	missing := t.need(reading.Capacity, true) - reading.Available
	for i := range d.pods {
		if d.pods[i].Ending {
			n, _ := d.pods[i].Usage.of(t.Signal, d.rules.Layout)
			missing -= n
		}
	}
	if missing > 0 {
		r.othersSince = time.Time{}
		return false
	}
	if r.othersSince.IsZero() {
		r.othersSince = d.in.Now
	}
	return d.in.Now.Sub(r.othersSince) < othersEndTime
}

// reclaims returns what may free the signal's resource without an end of pods (kubelet: buildSignalToNodeReclaimFuncs).
func reclaims(s Signal, layout Layout) (containers, images bool) {
	if s.pressure() != diskPressure {
		return false, false
	}
	switch {
	case layout == OneDisk:
		return true, true
	case layout == ImageDisk:
		on := s.onImageFs() || s.onContainerFs()
		return on, on
	case s.onImageFs():
		return false, true
	default:
		return true, false
	}
}

package podsync

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// phase is what the status of a pod depends on beside its inputs.
type phase int

const (
	phaseSync phase = iota
	phaseTerminating
	phaseTerminated
)

// inputs has the inputs from which the status of a pod is generated, beside those of
// podState and the results of probes. Pod and status are immutable, so equal pointers are
// equal values.
type inputs struct {
	pod      *v1.Pod
	observed *runtime.PodStatus
	phase    phase
}

// podState is what a Syncer remembers of one incarnation of a pod.
type podState struct {
	// dir is the directory of the pod, and sandboxReady what a runtime calls with a new
	// sandbox. They are the same for all calls for the pod.
	dir          string
	sandboxReady func(runtime.SandboxStatus)
	// volumes is held while the volumes are set up. starting is the context of the SyncPod that
	// has set them up and calls the runtime, nil if there is none. outdated is the number of
	// failures in a row to bring ready volumes to their latest content.
	volumes  sync.Mutex
	starting context.Context
	outdated int
	// updated is the pod of the latest update that came while SyncPod was under way.
	updated atomic.Pointer[v1.Pod]
	// running are the IDs of the containers for which the step Running was called; only SyncPod uses it.
	running map[string]struct{}
	// waits are those of the last SyncPod, each of which has an event; only SyncPod uses them.
	waits map[string]runtime.WaitError
	// event is the hook of the calls of the runtime. warned is set by a warning.
	event  runtime.EventFunc
	warned atomic.Bool
	// start is the start time of the status, and began the same time with a monotonic reading; both are zero
	// if the pod never had a deadline. Only SyncPod uses them.
	start, began time.Time

	// watch names steps that take long.
	watch watch

	// mu guards the following. It is not held while other parts are called.
	mu sync.Mutex
	// generating is closed when the generation of the status under way has ended; nil if there is none. again means
	// that an input has changed since that one began, so another one follows: the latest status is always generated
	// from the latest inputs and results of probes.
	generating chan struct{}
	again      bool
	// gone means that the incarnation has ended; the status is not set any more.
	gone bool
	// last, override and host, with the addresses, are the inputs of the latest status. last.pod
	// is nil if there is none.
	last     inputs
	host     *runtime.Host
	override func(*v1.PodStatus)
	// waiting has the waiting reasons that the last SyncPod returned.
	waiting map[string]v1.ContainerStateWaiting
	// slow is the step under way that takes long, zero if none does.
	slow   underway.Slow
	resize resizeState
	// resizeMeasured is the latest [ResizeInProgress]. It belongs to the goroutine of generate.
	resizeMeasured bool
}

// state returns the state of the pod, a new one if there is none.
func (s *Syncer) state(uid types.UID) *podState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil {
		st = &podState{dir: s.PodDir(uid)}
		st.sandboxReady = func(sandbox runtime.SandboxStatus) { s.sandboxReady(st, sandbox) }
		st.event = func(e runtime.Event) {
			if e.Type == v1.EventTypeWarning {
				st.warned.Store(true)
			}
			s.opts.Event.Emit(e)
		}
		s.pods[uid] = st
	}
	return st
}

// forget ends the state of an incarnation. No status of it is set after that.
func (s *Syncer) forget(uid types.UID) {
	s.mu.Lock()
	st := s.pods[uid]
	delete(s.pods, uid)
	s.mu.Unlock()
	if st != nil {
		st.lockIdle()
		defer st.mu.Unlock()
		st.gone = true
	}
}

// lockIdle takes mu while no status is being generated. Callbacks do not call it.
func (st *podState) lockIdle() {
	st.mu.Lock()
	for st.generating != nil {
		ended := st.generating
		st.mu.Unlock()
		<-ended
		st.mu.Lock()
	}
}

// setStatus generates the status of the pod from the inputs, makes it the latest one, and
// returns it.
func (s *Syncer) setStatus(st *podState, in inputs, override func(*v1.PodStatus)) v1.PodStatus {
	st.lockIdle()
	st.last, st.override = in, override
	return s.generate(st)
}

// refresh generates and sets the status again, after change has changed an input; nil
// changes none. It does nothing if there is no status, or change returns false. change is called with the lock held. If
// a status is being generated, another one follows, and refresh does not wait for it: it may be called by a callback.
func (s *Syncer) refresh(st *podState, change func() bool) {
	st.mu.Lock()
	switch {
	case st.gone || st.last.pod == nil || change != nil && !change():
		st.mu.Unlock()
	case st.generating != nil:
		st.again = true
		st.mu.Unlock()
	default:
		s.generate(st)
	}
}

// generate generates the status from the state, and sets it, until no input has changed meanwhile. st.mu is held, no
// status is being generated, and generate unlocks st.mu, also if a call panics.
func (s *Syncer) generate(st *podState) (api v1.PodStatus) {
	st.generating, st.again = make(chan struct{}), true
	st.mu.Unlock()
	ended := false
	defer func() {
		if !ended { // a call has panicked
			st.mu.Lock()
			defer st.mu.Unlock()
			st.endGeneration()
		}
	}()
	for st.generateAgain() {
		in, completed := s.input(st)
		if prev, ok := s.deps.Status.Get(in.Pod.UID); ok {
			in.Previous = &prev
		}
		api = status.Generate(in)
		if err := s.steps.EditStatus(in.Pod, &api); err != nil {
			s.log.Error(err, "A component cannot add to the status of a pod", "pod", runtime.RefOf(in.Pod))
		}
		s.deps.Status.Set(in.Pod, api)
		s.warnOfHostIP(in, &api)
		if completed != "" {
			s.emit(runtime.RefOf(in.Pod), v1.EventTypeNormal, "ResizeCompleted", completed)
		}
		s.measureResize(st, in.Resize)
	}
	ended = true
	return api
}

// generateAgain reports whether an input has changed since the last call. If none has, it ends the generation.
func (st *podState) generateAgain() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.again {
		st.endGeneration()
		return false
	}
	st.again = false
	return true
}

// endGeneration ends the generation of a status. st.mu is held.
func (st *podState) endGeneration() {
	close(st.generating)
	st.generating = nil
}

// input returns the input of the latest status, but for the previous one, and the message of a resize that has ended,
// "" if none has.
func (s *Syncer) input(st *podState) (in status.Input, completed string) {
	st.mu.Lock()
	pod := st.last.pod
	st.mu.Unlock()
	host, pending := s.currentHost(), s.resizePending(pod)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.host = host
	in = status.Input{
		Pod:         st.last.pod,
		Runtime:     st.last.observed,
		Waiting:     st.waitingNow(st.last.pod),
		HostIPs:     host.IPs,
		Now:         time.Now(),
		Terminating: st.last.phase >= phaseTerminating,
		Terminated:  st.last.phase >= phaseTerminated,
		Override:    st.override,
		Probes:      s.probes(),
	}
	in.Resize, completed = st.resizeConditions(pending)
	return in, completed
}

// RefreshStatus implements [podworkers.Syncer].
func (s *Syncer) RefreshStatus(uid types.UID) {
	s.mu.Lock()
	st := s.pods[uid]
	s.mu.Unlock()
	if st != nil {
		s.refresh(st, nil)
	}
}

// unchangedStatus returns the latest status of the pod if its inputs are the same. Results
// of probes may change at any time, so a pod with probes has its status generated at each
// sync.
func (s *Syncer) unchangedStatus(st *podState, in inputs) (v1.PodStatus, bool) {
	host, pending := s.currentHost(), s.resizePending(in.pod)
	st.mu.Lock()
	same := st.last == in && st.host == host && pending == st.resize.pending
	st.mu.Unlock()
	if !same || in.observed == nil || hasProbes(s.probes(), in.pod) {
		return v1.PodStatus{}, false
	}
	return s.deps.Status.Get(in.pod.UID)
}

// setWaiting brings the status up to date if the waiting reasons differ from the last. If the
// sync has changed the pod, and no reason is new, that is left to the next sync, which follows
// at once: until its status is read, a container that was just started has ended before.
func (s *Syncer) setWaiting(st *podState, now map[string]v1.ContainerStateWaiting, changed bool) {
	s.refresh(st, func() bool {
		before := st.waiting
		st.waiting = now
		for name, reason := range now {
			if before[name] != reason {
				return true
			}
		}
		return !changed && len(now) != len(before)
	})
}

// sandboxReady brings the status up to date with a sandbox that was made in the sync
// under way, so that the condition PodReadyToStartContainers does not wait for pulls and
// hooks (kubelet: OnPodSandboxReady).
func (s *Syncer) sandboxReady(st *podState, sandbox runtime.SandboxStatus) {
	s.refresh(st, func() bool {
		with := runtime.PodStatus{Sandboxes: []runtime.SandboxStatus{sandbox}, IPs: sandbox.IPs}
		if before := st.last.observed; before != nil {
			with.PodRef, with.Containers = before.PodRef, before.Containers
			for _, old := range before.Sandboxes {
				old.State = runtime.SandboxNotReady // it was stopped before
				with.Sandboxes = append(with.Sandboxes, old)
			}
		} else {
			with.PodRef = runtime.RefOf(st.last.pod)
		}
		st.last.observed = &with
		return true
	})
}

// warnOfHostIP emits kubelet's event about a pod whose node has got an address of another family than before, as when a
// cloud provider chooses another one than was found.
func (s *Syncer) warnOfHostIP(in status.Input, now *v1.PodStatus) {
	if in.Previous == nil {
		return
	}
	before, err := netip.ParseAddr(in.Previous.HostIP)
	after, err2 := netip.ParseAddr(now.HostIP)
	if err != nil || err2 != nil || before.Is4() == after.Is4() {
		return
	}
	family := func(ip netip.Addr) int {
		if ip.Is4() {
			return 4
		}
		return 6
	}
	s.warn(in.Pod, "HostIPsIPFamilyMismatch", fmt.Sprintf("Kubelet detected an IPv%d node IP (%s), but the cloud "+
		"provider selected an IPv%d node IP (%s); pass an explicit `--node-ip` to kubelet to fix this.",
		family(before), before, family(after), after))
}

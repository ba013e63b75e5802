package podsync

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// StatusRefresher is an optional interface of a [podworkers.Syncer], found by
// [runtime.Optional].
type StatusRefresher interface {
	// RefreshStatus brings the API status of the pod up to date with the results of its
	// probes, also while a call for the pod is under way: a pull, a hook or the end of the
	// pod may take minutes. It does nothing for an unknown pod. It is safe for concurrent
	// use and waits for no call.
	RefreshStatus(uid types.UID)
}

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

	// mu is held while the status is generated and set. So the latest status is always
	// generated from the latest inputs and results of probes.
	mu sync.Mutex
	// gone means that the incarnation has ended; the status is not set any more.
	gone bool
	// last, override and host, with the addresses, are the inputs of the latest status. last.pod
	// is nil if there is none.
	last     inputs
	host     *runtime.Host
	override func(*v1.PodStatus)
	// waiting has the waiting reasons that the last SyncPod returned.
	waiting map[string]v1.ContainerStateWaiting
	resize  resizeState
}

// state returns the state of the pod, a new one if there is none.
func (s *Syncer) state(uid types.UID) *podState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil {
		st = &podState{dir: s.PodDir(uid)}
		st.sandboxReady = func(sandbox runtime.SandboxStatus) { s.sandboxReady(st, sandbox) }
		s.pods[uid] = st
	}
	return st
}

// forget ends the state of an incarnation.
func (s *Syncer) forget(uid types.UID) {
	s.mu.Lock()
	st := s.pods[uid]
	delete(s.pods, uid)
	s.mu.Unlock()
	if st != nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.gone = true
	}
}

// setStatus generates the status of the pod from the inputs, makes it the latest one, and
// returns it.
func (s *Syncer) setStatus(st *podState, in inputs, override func(*v1.PodStatus)) v1.PodStatus {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.last, st.override = in, override
	return s.generate(st)
}

// generate generates the status from the state, and sets it. st.mu is held.
func (s *Syncer) generate(st *podState) v1.PodStatus {
	st.host = s.currentHost()
	in := status.Input{
		Pod:         st.last.pod,
		Runtime:     st.last.observed,
		Waiting:     st.waiting,
		HostIPs:     st.host.IPs,
		Now:         time.Now(),
		Terminating: st.last.phase >= phaseTerminating,
		Terminated:  st.last.phase >= phaseTerminated,
		Override:    st.override,
		Probes:      s.probes(),
		Resize:      s.resizeConditions(st),
	}
	if prev, ok := s.deps.Status.Get(in.Pod.UID); ok {
		in.Previous = &prev
	}
	api := status.Generate(in)
	s.deps.Status.Set(in.Pod, api)
	return api
}

// refresh generates and sets the status again, after change has changed an input; nil
// changes none. It does nothing if there is no status, or change returns false.
func (s *Syncer) refresh(st *podState, change func() bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gone || st.last.pod == nil || change != nil && !change() {
		return
	}
	s.generate(st)
}

// RefreshStatus implements [StatusRefresher].
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
	st.mu.Lock()
	same := st.last == in && st.host == s.currentHost() && s.resizePending(in.pod) == st.resize.pending
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

package syncloop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// sweepPeriod is the time between two sweeps for orphans when nothing hints at one.
// observedSweepPeriod is that of a handler that receives the events of the runtime: they
// report each orphan. It is the time between relists of a PLEG with a reliable event stream.
const (
	sweepPeriod         = time.Minute
	observedSweepPeriod = 5 * time.Minute
)

// listTimeout bounds the handler's own lists of the runtime: the loop waits for them, and
// a healthy runtime answers in milliseconds.
const listTimeout = 10 * time.Second

// HandlerDeps are the parts that a [PodHandler] works with. Steps, Prober and Checkpoint may be
// nil.
type HandlerDeps struct {
	Pods    podmanager.Manager
	Workers podworkers.Workers
	Status  status.Manager
	Runtime runtime.Lister
	// Steps are called at the steps Admit and Gone of the lives of pods, as podsync.Syncer.Steps returns them. The
	// handler removes no directory of a pod itself: the step Gone of the volumes of podsync does, by
	// volume.Manager.Remove. nil: nothing joins, and the directories stay.
	Steps      *lifecycle.Steps
	Prober     prober.Manager
	Checkpoint checkpoint.Store
}

// HandlerOptions are the settings of a [PodHandler].
type HandlerOptions struct {
	// PodsDir holds a directory for each pod. Required.
	PodsDir string
	// Admit decides which new pods may run, and which pods may be resized. nil: HandlerDeps.Steps decides. When the
	// workers are drained, the handler refuses all of these pods and does not call Admit.
	Admit lifecycle.Admitter
	// Host is passed to Admit. It may be nil.
	Host *runtime.Host
	// RecreateUpdated stops a pod and starts it again when an update under its UID
	// changes a field that does not act on running containers, such as a command. If it
	// is false, only an event names these fields. Pods with the restart policy Never or
	// OnFailure get the event in any case, because their containers might not start again,
	// and so do pods of an API server, where a pod that was stopped is Failed for good.
	RecreateUpdated bool
	// Gone is called when pods have ended, and when a cleanup finds dead containers or
	// sandboxes of pods that are gone. They can be collected then. It must not block. nil: no
	// callback.
	Gone func()
	// Observer receives events of refusals and of updates that are not applied, and records of the decisions about
	// desired pods, of changes of them, and of the end of pods. Its Logger has refusals and orphans.
	runtime.Observer
}

// PodHandler is the default [Handler]. Its methods are called from one goroutine, except
// ResizePending.
type PodHandler struct {
	deps HandlerDeps
	opts HandlerOptions
	log  logr.Logger
	// waitForObserver is called by Stop.
	waitForObserver func()

	// refused has the desired pods that were not admitted. They have no worker.
	refused map[types.UID]struct{}
	// stopping has the desired pods that were refused and have a worker that takes them down.
	// The checkpoint must not have them again.
	stopping map[types.UID]struct{}
	// before has the running pods of an earlier agent that have no worker yet; nil after
	// the first sweep.
	before []*runtime.Pod
	// notPrepared is called with a pod of before for which the step Prepare will not be called.
	notPrepared func(types.UID)
	// sweep is true if the runtime may have orphans, mayHaveDirs if there may be directories
	// of pods that are gone. observed is true when Observe has been called.
	sweep, mayHaveDirs, observed bool
	lastSweep                    time.Time
	// known has the pods of which the workers have a record: those after the last cleanup
	// and those that were given to a worker since. It also has the refused pods that were
	// removed since, so that their end is reported, too.
	known map[types.UID]runtime.PodRef
	// inRuntime has the pods whose end was reported and of which the runtime may have dead
	// containers or sandboxes: those of the last sweep, and those that ended since.
	inRuntime map[types.UID]bool
	// reported has the pods whose end was reported, and is kept until it is delivered.
	reported map[types.UID]bool
	// goneDue has the pods whose end was reported and for which the step Gone is due or under way.
	goneDue map[types.UID]runtime.PodRef
	// resizes has the pods that wait for other resources.
	resizes pendingResizes
	// removals are the calls of the step Gone that are under way or have failed.
	removals removals
}

var _ Handler = (*PodHandler)(nil)

// NewHandler returns a handler, or an error that names what is missing.
func NewHandler(deps HandlerDeps, opts HandlerOptions) (*PodHandler, error) {
	observer, wait := opts.Queued()
	opts.Observer = observer
	var errs []error
	require := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("syncloop: %s is required", name))
		}
	}
	require(deps.Pods != nil, "HandlerDeps.Pods")
	require(deps.Workers != nil, "HandlerDeps.Workers")
	require(deps.Status != nil, "HandlerDeps.Status")
	require(deps.Runtime != nil, "HandlerDeps.Runtime")
	require(filepath.IsAbs(opts.PodsDir), "HandlerOptions.PodsDir, as an absolute path,")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opts.Admit == nil {
		opts.Admit = deps.Steps
	}
	opts.Admit = undrained{opts.Admit, deps.Workers}
	if opts.Gone == nil {
		opts.Gone = func() {}
	}
	return &PodHandler{
		deps: deps, opts: opts, log: opts.Logger, waitForObserver: wait,
		refused: map[types.UID]struct{}{}, stopping: map[types.UID]struct{}{}, sweep: true,
		known: map[types.UID]runtime.PodRef{}, inRuntime: map[types.UID]bool{}, reported: map[types.UID]bool{},
		goneDue: map[types.UID]runtime.PodRef{}, removals: newRemovals(), notPrepared: func(types.UID) {},
	}, nil
}

// update gives an update to the pod's worker.
func (h *PodHandler) update(u podworkers.Update) {
	if u.Pod != nil {
		h.known[u.Pod.UID], u.Received = runtime.RefOf(u.Pod), time.Now()
		if !h.starts(u.Pod.UID) {
			return
		}
	} else {
		h.known[u.Orphan.UID] = u.Orphan.PodRef
		h.notPrepared(u.Orphan.UID)
	}
	h.deps.Workers.UpdatePod(u)
}

// starts reports whether a pod with the UID may have a worker now. Otherwise an earlier one is being removed, and the
// cleanup after that starts the pod if it is desired then.
func (h *PodHandler) starts(uid types.UID) bool {
	_, leaving := h.goneDue[uid]
	return !leaving && h.removals.byUID[uid] == nil
}

// prepareFirstLimit is the time for which other pods wait until those are prepared that run when the agent starts. It
// is many times what a sync takes, and short enough that one pod that hangs, or a source that does not deliver, does
// not keep others from starting.
const prepareFirstLimit = 10 * time.Second

// Prepare implements [Handler]. It lists the pods that an earlier agent left running, so
// that HandlePodAdditions finds the predecessors of pods, and components see them before others.
func (h *PodHandler) Prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, err := runtime.ListPods(ctx, h.deps.Runtime)
	if err != nil {
		return fmt.Errorf("looking for pods that run already: %w", err)
	}
	h.before = slices.DeleteFunc(slices.Clone(listed), func(pod *runtime.Pod) bool { return !pod.Running() })
	uids := make([]types.UID, len(h.before))
	for i, pod := range h.before {
		uids[i] = pod.UID
	}
	h.notPrepared = h.deps.Steps.PrepareFirst(uids, prepareFirstLimit)
	return nil
}

// HandlePodAdditions implements [Handler]. It admits the pods, the oldest first, and
// gives them to their workers. A pod that an earlier agent ran under the same full name
// is stopped first. A pod that an earlier agent could not resize has the resources that it
// held then, until all others have theirs. A pod that arrives Succeeded or Failed is not admitted: its worker
// only takes it down (kubelet: HandlePodAdditions). The same holds for one whose deletion
// was requested: it does not start, and a refusal would be in its status for nothing.
func (h *PodHandler) HandlePodAdditions(pods []*v1.Pod) {
	pods = h.withinLimit(pods)
	active := h.active(pods)
	var toResize []resize
	for _, wanted := range oldestFirst(pods) {
		pod := heldBefore(wanted)
		h.deps.Pods.Set(pod)
		delete(h.stopping, pod.UID)
		if podspec.IsMirror(pod) {
			continue
		}
		h.endPredecessors(pod)
		// Before the pod is admitted: what components have given it by then must not be taken back by the removal of an
		// earlier one.
		if r := h.removals.byUID[pod.UID]; r != nil && r.ended() {
			h.endRemoval(pod.UID, r)
		}
		// Of a pod whose end was requested, this is the next incarnation, which is admitted when that one has ended. An
		// orphan of the UID is no incarnation: it was not admitted here.
		switch st := h.deps.Workers.State(pod.UID); {
		case st.TerminationRequested() && st.HasConfig:
			active = append(active, pod)
		case !isPodActive(pod):
		case !h.admit(pod, active):
			continue
		default:
			active = append(active, pod)
			if pod != wanted {
				since := podspec.ReportedCondition(wanted, v1.PodResizePending).LastTransitionTime.Time
				toResize = append(toResize, resize{held: pod, wanted: wanted, pending: pendingResize{since: since}})
			}
		}
		h.record(pod, runtime.Record{Kind: runtime.KindAdmit})
		h.opts.Measure.Emit(Admitted{len(pod.Spec.Containers)})
		h.keep(pod)
		h.update(podworkers.Update{Type: podworkers.Create, Pod: pod})
	}
	inOrder(toResize)
	for _, r := range toResize {
		h.HandlePodUpdates([]*v1.Pod{r.wanted})
	}
}

// isPodActive reports whether the pod is neither Succeeded, Failed nor to be deleted.
func isPodActive(pod *v1.Pod) bool {
	return !podspec.IsPhaseTerminal(pod.Status.Phase) && pod.DeletionTimestamp == nil
}

// admit reports whether the pod may run beside the active ones. If not, it is refused.
func (h *PodHandler) admit(pod *v1.Pod, active []*v1.Pod) bool {
	response, refusal := admit(h.opts.Admit, lifecycle.AdmitRequest{Pod: pod, Active: active, Host: h.opts.Host})
	if refusal != nil {
		h.refuse(pod, refusal)
		return false
	}
	h.evict(response.Evict, pod)
	return true
}

// endPredecessors stops a pod that an earlier agent ran under the full name of the added
// pod with another UID, or under its UID with another full name. It is an orphan although
// sources may be unseen, because one pod at a time has a full name. The worker of the
// added pod waits for its end: the two would bind the same ports and write the same
// directories.
func (h *PodHandler) endPredecessors(added *v1.Pod) {
	ref := runtime.RefOf(added)
	h.before = slices.DeleteFunc(h.before, func(old *runtime.Pod) bool {
		if h.deps.Workers.State(old.UID).Known() {
			return true
		}
		sameUID, sameName := old.UID == ref.UID, old.FullName() == ref.FullName()
		if sameUID == sameName { // the added pod itself, which runs already, or an unrelated one
			return false
		}
		h.log.Info("Stopping a pod of an earlier agent before its successor starts", "pod", old.PodRef,
			"successor", ref)
		h.update(podworkers.Update{Type: podworkers.Kill, Orphan: old})
		return true
	})
}

// HandlePodUpdates implements [Handler]. It passes the changes to the workers. A pod whose
// new resources are not free keeps those that it has.
func (h *PodHandler) HandlePodUpdates(pods []*v1.Pod) {
	pods = h.withinLimit(pods)
	for _, pod := range pods {
		old, _ := h.deps.Pods.ByUID(pod.UID)
		if _, refused := h.refused[pod.UID]; refused || podspec.IsMirror(pod) {
			h.deps.Pods.Set(pod)
			if refused {
				h.updateRefused(pod)
			}
			continue
		}
		h.measureRequested(old, pod)
		h.apply(old, h.allocate(old, pod))
	}
}

// apply makes the pod the desired version, and passes it to its worker. old is the version
// before, which may be nil.
func (h *PodHandler) apply(old, pod *v1.Pod) {
	h.deps.Pods.Set(pod)
	h.keep(pod)
	if old != nil {
		h.recordUpdate(old, pod)
	}
	if old == nil || !h.recreate(old, pod) {
		h.update(podworkers.Update{Type: podworkers.Change, Pod: pod})
	}
}

// recreate handles an update of fields that do not act on running containers; see
// [HandlerOptions].RecreateUpdated. It reports whether it has requested the end and a new
// start of the pod.
func (h *PodHandler) recreate(old, pod *v1.Pod) bool {
	st := h.deps.Workers.State(pod.UID)
	if pod.DeletionTimestamp != nil || st.TerminationRequested() {
		return false
	}
	fields := notApplied(old, pod)
	if len(fields) == 0 {
		return false
	}
	changed := strings.Join(fields, ", ")
	if h.opts.RecreateUpdated && mayRecreate(pod) && !st.Drained { // drained workers would not start it again
		h.emit(pod, v1.EventTypeNormal, "RecreatingPod",
			"Stopping the pod to start it anew, since these fields changed: "+changed)
		h.record(pod, runtime.Record{Kind: runtime.KindRecreate, Message: changed})
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: old})
		h.update(podworkers.Update{Type: podworkers.Create, Pod: pod})
		return true
	}
	h.emit(pod, v1.EventTypeWarning, "UpdateNotApplied", "Changed fields that do not act on what runs: "+changed+
		"; a container takes its own when it is started again, the pod takes all when it is removed and added")
	return false
}

// mayRecreate reports whether the pod may be stopped and started under its UID: its restart
// policy is Always, the default, and it is not from an API server. There a pod that was
// stopped is Failed for good.
func mayRecreate(pod *v1.Pod) bool {
	policy := pod.Spec.RestartPolicy
	return (policy == v1.RestartPolicyAlways || policy == "") &&
		pod.Annotations[podspec.AnnotationConfigSource] != podspec.SourceAPI
}

func (h *PodHandler) emit(pod *v1.Pod, eventType, reason, message string) {
	h.opts.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: eventType, Reason: reason, Message: message})
}

// logged emits a warning about something that is logged.
func (h *PodHandler) logged(pod *v1.Pod, reason, message string) {
	h.opts.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: reason,
		Message: message, Logged: true})
}

// HandlePodRemoves implements [Handler]. It requests the end of the pods.
func (h *PodHandler) HandlePodRemoves(pods []*v1.Pod) {
	for _, pod := range pods {
		h.deps.Pods.Remove(pod)
		if podspec.IsMirror(pod) {
			continue
		}
		h.drop(pod)
		h.endPending(pod.UID, ResizeTerminated)
		delete(h.stopping, pod.UID)
		h.record(pod, runtime.Record{Kind: runtime.KindWithdraw})
		if _, refused := h.refused[pod.UID]; refused {
			delete(h.refused, pod.UID)
			h.known[pod.UID] = runtime.RefOf(pod) // without a worker: the next cleanup reports its end
			continue
		}
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: pod})
	}
}

// HandlePodSyncs implements [Handler]. It requests a sync of the pods from their
// workers.
func (h *PodHandler) HandlePodSyncs(pods []*v1.Pod) {
	for _, pod := range pods {
		if _, refused := h.refused[pod.UID]; refused || podspec.IsMirror(pod) {
			continue
		}
		h.update(podworkers.Update{Type: podworkers.Sync, Pod: pod})
	}
}

// keep has the checkpoint keep the pod. A pod that is Succeeded or Failed in its source, or was
// refused, is dropped: restored after a reboot, it might run again until the source can be read.
func (h *PodHandler) keep(pod *v1.Pod) {
	if _, stopping := h.stopping[pod.UID]; stopping || podspec.IsPhaseTerminal(pod.Status.Phase) {
		h.drop(pod)
		return
	}
	if h.deps.Checkpoint != nil {
		h.deps.Checkpoint.Keep(asAllocated(pod))
	}
}

func (h *PodHandler) drop(pod *v1.Pod) {
	if h.deps.Checkpoint == nil {
		return
	}
	h.deps.Checkpoint.KeepEnd(runtime.RefOf(pod))
	if !h.resumes(pod.UID) {
		h.deps.Checkpoint.Drop(pod.UID)
	}
}

// resumes reports whether the pod is desired and does not run only because the workers are
// drained: it runs again with the next agent.
func (h *PodHandler) resumes(uid types.UID) bool {
	return h.desired(uid) && h.deps.Workers.State(uid).Drained
}

// active returns the desired pods that hold resources of the node: those that run or
// are to run, and those that are being stopped, whatever their phase (kubelet:
// isPodInactive in kubelet_pods.go). It leaves out the added pods, and those with the full
// name of an added pod: a successor gets the resources of its predecessor.
func (h *PodHandler) active(added []*v1.Pod) []*v1.Pod {
	uids, taken := make(map[types.UID]bool, len(added)), make(map[string]bool, len(added))
	for _, pod := range added {
		uids[pod.UID], taken[runtime.RefOf(pod).FullName()] = true, true
	}
	return slices.DeleteFunc(slices.Clone(h.deps.Pods.Pods()), func(pod *v1.Pod) bool {
		if _, refused := h.refused[pod.UID]; refused || uids[pod.UID] || taken[runtime.RefOf(pod).FullName()] {
			return true
		}
		st := h.deps.Workers.State(pod.UID)
		return st.Terminated() || !st.TerminationRequested() && h.finished(pod)
	})
}

// finished reports whether the phase of the pod is final, in its source or in the status
// that the source has not received yet.
func (h *PodHandler) finished(pod *v1.Pod) bool {
	s, _ := h.deps.Status.Get(pod.UID)
	return podspec.IsPhaseTerminal(pod.Status.Phase) || podspec.IsPhaseTerminal(s.Phase)
}

// oldestFirst returns the pods sorted by creation time. Pods without one, such as static
// pods, come first and keep their order.
func oldestFirst(pods []*v1.Pod) []*v1.Pod {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return sorted
}

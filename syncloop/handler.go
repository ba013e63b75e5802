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

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// sweepPeriod is the time between two sweeps for orphans when nothing hints at one.
const sweepPeriod = time.Minute

// listTimeout bounds the handler's own lists of the runtime: the loop waits for them, and
// a healthy runtime answers in milliseconds.
const listTimeout = 10 * time.Second

// PodManager holds the desired pods; a podmanager.PodManager is one.
type PodManager interface {
	Set(pod *v1.Pod)
	Remove(pod *v1.Pod)
	ByUID(uid types.UID) (*v1.Pod, bool)
	// Pods returns all desired pods without mirror pods.
	Pods() []*v1.Pod
}

// Workers drive the pods; a podworkers.PodWorkers is one.
type Workers interface {
	UpdatePod(u podworkers.Update)
	SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.State
	State(uid types.UID) podworkers.State
}

// Statuses keeps the API status of pods; a status.StatusManager is one.
type Statuses interface {
	Get(uid types.UID) (v1.PodStatus, bool)
	Set(pod *v1.Pod, s v1.PodStatus)
	// Prune drops the pods for which keep returns false.
	Prune(keep func(uid types.UID) bool)
}

// ProbeCleaner ends the probes of pods that are gone; a prober.ProbeManager is one.
type ProbeCleaner interface {
	Cleanup(keep func(uid types.UID) bool)
}

// PodDirs removes the directories of pods that are gone; a volume.VolumeManager is one.
type PodDirs interface {
	// Remove takes down the volumes below the directory and removes it. It must
	// refuse to cross a mount.
	Remove(ctx context.Context, ref runtime.PodRef, podDir string) error
}

// Checkpoint keeps pods on disk, to be restored after a reboot;
// *podconfig/checkpoint.Store is one. Its methods must not wait for the disk.
type Checkpoint interface {
	// Keep records a pod that was admitted. It is called again when the pod changes in
	// more than its status.
	Keep(pod *v1.Pod)
	// Drop removes the record of a pod that was refused or that its source wants no
	// more. There may be none.
	Drop(uid types.UID)
	// Prune removes the records of all pods for which keep returns false. It is called
	// once every source has delivered.
	Prune(keep func(uid types.UID) bool)
}

// Rechecker is an optional interface of [Statuses]: it looks again at final phases that
// are held back because containers of the pod may run. The handler calls it in each
// cleanup, when the workers have been told all that is desired.
type Rechecker interface {
	Recheck()
}

// EndReporter is an optional interface of [Statuses]: PodEnded reports a pod that is
// gone from the desired state, the workers and the runtime. The handler calls it also for
// pods that Statuses may never have known: orphans, and pods that ended before they
// started. It must not block, and may be called again for the same pod.
type EndReporter interface {
	PodEnded(ref runtime.PodRef)
}

// HandlerDeps are the parts that a [Handler] works with. Prober and Checkpoint may
// be nil. The optional interfaces of Status are [Rechecker] and [EndReporter]; they are
// found through wrappers, see [runtime.Optional].
type HandlerDeps struct {
	Pods       PodManager
	Workers    Workers
	Status     Statuses
	Runtime    runtime.Lister
	Prober     ProbeCleaner
	Dirs       PodDirs
	Checkpoint Checkpoint
}

// HandlerOptions are the settings of a [Handler].
type HandlerOptions struct {
	// PodsDir holds a directory for each pod. Required.
	PodsDir string
	// Admit decides which new pods may run. nil: all may.
	Admit Admitter
	// Host is handed to Admit; it may be nil.
	Host *runtime.Host
	// RecreateUpdated has a pod stopped and started anew when it is updated under its UID
	// in a field that does not act on running containers, such as a command. Otherwise,
	// and for pods with the restart policy Never, whose containers would not start again,
	// an event names the fields.
	RecreateUpdated bool
	// Gone is called when pods have been forgotten, so that what is left of them in
	// the runtime can be collected. It must not block. nil: no callback.
	Gone func()
	// Event receives refusals and updates that are not applied.
	Event runtime.EventFunc
	// Logger of refusals and orphans.
	Logger logr.Logger
}

// Handler is the default [SyncHandler]. Its methods are called from one goroutine.
type Handler struct {
	deps    HandlerDeps
	opts    HandlerOptions
	log     logr.Logger
	recheck func()
	ended   func(runtime.PodRef)

	// refused are the desired pods that were not admitted; they have no worker.
	refused map[types.UID]struct{}
	// before are the pods of an earlier agent that have no worker yet; nil after the first
	// sweep.
	before []*runtime.Pod
	// sweep means that the runtime or the disk may hold orphans.
	sweep     bool
	lastSweep time.Time
	// known are the pods that have a worker or a record of it: those of the last cleanup
	// and those given to a worker since.
	known map[types.UID]runtime.PodRef
	// remains are the pods whose end has been reported and of which the runtime may hold
	// something dead: those of the last sweep, and those that ended since.
	remains map[types.UID]bool
}

var (
	_ SyncHandler = (*Handler)(nil)
	_ Preparer    = (*Handler)(nil)
)

// NewHandler returns a handler, or an error that names what is missing.
func NewHandler(deps HandlerDeps, opts HandlerOptions) (*Handler, error) {
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
	require(deps.Dirs != nil, "HandlerDeps.Dirs")
	require(filepath.IsAbs(opts.PodsDir), "HandlerOptions.PodsDir, as an absolute path,")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opts.Admit == nil {
		opts.Admit = Chain()
	}
	if opts.Gone == nil {
		opts.Gone = func() {}
	}
	h := &Handler{
		deps: deps, opts: opts, log: opts.Logger,
		recheck: func() {}, ended: func(runtime.PodRef) {},
		refused: map[types.UID]struct{}{}, sweep: true, known: map[types.UID]runtime.PodRef{}, remains: map[types.UID]bool{},
	}
	if r, ok := runtime.Optional[Rechecker](deps.Status); ok {
		h.recheck = r.Recheck
	}
	if r, ok := runtime.Optional[EndReporter](deps.Status); ok {
		h.ended = r.PodEnded
	}
	return h, nil
}

// update gives an update to the pod's worker.
func (h *Handler) update(u podworkers.Update) {
	if u.Pod != nil {
		h.known[u.Pod.UID], u.Received = runtime.RefOf(u.Pod), time.Now()
	} else {
		h.known[u.Orphan.UID] = u.Orphan.PodRef
	}
	h.deps.Workers.UpdatePod(u)
}

// Prepare implements [Preparer]: it lists what an earlier agent left running, so that
// HandlePodAdditions finds the predecessors of pods.
func (h *Handler) Prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, err := h.deps.Runtime.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("looking for pods that run already: %w", err)
	}
	h.before = slices.DeleteFunc(slices.Clone(listed), func(pod *runtime.Pod) bool { return !pod.Running() })
	return nil
}

// HandlePodAdditions admits the pods, the oldest first, and gives them to their workers. A
// pod that an earlier agent ran under the same full name is stopped first.
func (h *Handler) HandlePodAdditions(pods []*v1.Pod) {
	active := h.active(pods)
	for _, pod := range oldestFirst(pods) {
		h.deps.Pods.Set(pod)
		if runtime.IsMirror(pod) {
			continue
		}
		h.endPredecessors(pod)
		if !h.deps.Workers.State(pod.UID).TerminationRequested() {
			if refusal := admit(h.opts.Admit, AdmitRequest{Pod: pod, Active: active, Host: h.opts.Host}); refusal != nil {
				h.refuse(pod, refusal)
				continue
			}
			active = append(active, pod)
		}
		h.keep(pod)
		h.update(podworkers.Update{Type: podworkers.Create, Pod: pod})
	}
}

// endPredecessors stops what an earlier agent ran under the pod's full name. It is an
// orphan although not all sources may have been seen, since only one pod at a time has a
// full name. The worker of the pod waits for its end: the two would bind the same ports
// and write the same directories.
func (h *Handler) endPredecessors(pod *v1.Pod) {
	ref := runtime.RefOf(pod)
	h.before = slices.DeleteFunc(h.before, func(old *runtime.Pod) bool {
		if h.deps.Workers.State(old.UID).Known() {
			return true
		}
		sameUID, sameName := old.UID == ref.UID, old.FullName() == ref.FullName()
		if sameUID == sameName { // another pod, or this one, to be adopted
			return false
		}
		h.log.Info("Stopping a pod of an earlier agent before its successor starts", "pod", old.PodRef, "successor", ref)
		h.update(podworkers.Update{Type: podworkers.Kill, Orphan: old})
		return true
	})
}

// HandlePodUpdates passes changes on to the workers.
func (h *Handler) HandlePodUpdates(pods []*v1.Pod) {
	for _, pod := range pods {
		old, _ := h.deps.Pods.ByUID(pod.UID)
		h.deps.Pods.Set(pod)
		if _, refused := h.refused[pod.UID]; refused || runtime.IsMirror(pod) {
			continue
		}
		h.keep(pod)
		if old == nil || !h.recreate(old, pod) {
			h.update(podworkers.Update{Type: podworkers.Change, Pod: pod})
		}
	}
}

// recreate stops the pod and starts it anew if what changed does not act on what runs,
// and if that is wanted. It reports whether it did; an event says what is not applied
// otherwise.
func (h *Handler) recreate(old, pod *v1.Pod) bool {
	if h.deps.Workers.State(pod.UID).TerminationRequested() {
		return false
	}
	fields := notApplied(old, pod)
	if len(fields) == 0 {
		return false
	}
	changed := strings.Join(fields, ", ")
	if h.opts.RecreateUpdated && pod.Spec.RestartPolicy != v1.RestartPolicyNever {
		h.emit(pod, v1.EventTypeNormal, "RecreatingPod", "Stopping the pod to start it anew, since these fields changed: "+changed)
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: old})
		h.update(podworkers.Update{Type: podworkers.Create, Pod: pod})
		return true
	}
	h.emit(pod, v1.EventTypeWarning, "UpdateNotApplied", "Changed fields that do not act on what runs: "+changed+
		"; a container takes its own when it is started again, the pod takes all when it is removed and added")
	return false
}

func (h *Handler) emit(pod *v1.Pod, eventType, reason, message string) {
	h.opts.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: eventType, Reason: reason, Message: message})
}

// HandlePodRemoves requests the end of the pods.
func (h *Handler) HandlePodRemoves(pods []*v1.Pod) {
	for _, pod := range pods {
		h.deps.Pods.Remove(pod)
		if runtime.IsMirror(pod) {
			continue
		}
		h.drop(pod)
		if _, refused := h.refused[pod.UID]; refused {
			delete(h.refused, pod.UID)
			continue
		}
		h.update(podworkers.Update{Type: podworkers.Kill, Pod: pod})
	}
}

// HandlePodReconcile takes over the status that the source delivers, such as the conditions
// of readiness gates; the worker merges it.
func (h *Handler) HandlePodReconcile(pods []*v1.Pod) {
	for _, pod := range pods {
		h.deps.Pods.Set(pod)
		if len(pod.Spec.ReadinessGates) > 0 {
			h.HandlePodSyncs([]*v1.Pod{pod})
		}
	}
}

// HandlePodSyncs requests a sync of the pods from their workers.
func (h *Handler) HandlePodSyncs(pods []*v1.Pod) {
	for _, pod := range pods {
		if _, refused := h.refused[pod.UID]; refused || runtime.IsMirror(pod) {
			continue
		}
		h.update(podworkers.Update{Type: podworkers.Sync, Pod: pod})
	}
}

func (h *Handler) refuse(pod *v1.Pod, refusal *runtime.TerminalError) {
	h.log.Info("Pod refused", "pod", runtime.RefOf(pod), "reason", refusal.Reason, "message", refusal.Message)
	h.refused[pod.UID] = struct{}{}
	h.drop(pod)
	h.emit(pod, v1.EventTypeWarning, refusal.Reason, refusal.Message)
	s := pod.Status.DeepCopy()
	s.Phase, s.Reason, s.Message = v1.PodFailed, refusal.Reason, "Pod was rejected: "+refusal.Message
	s.QOSClass = runtime.QOSClass(pod)
	h.deps.Status.Set(pod, *s)
}

func (h *Handler) keep(pod *v1.Pod) {
	if h.deps.Checkpoint != nil {
		h.deps.Checkpoint.Keep(pod)
	}
}

func (h *Handler) drop(pod *v1.Pod) {
	if h.deps.Checkpoint != nil {
		h.deps.Checkpoint.Drop(pod.UID)
	}
}

// active returns the desired pods that hold resources of the node, without the added ones
// and those whose full name an added one takes over: a successor gets what its predecessor
// holds.
func (h *Handler) active(added []*v1.Pod) []*v1.Pod {
	uids, taken := make(map[types.UID]bool, len(added)), make(map[string]bool, len(added))
	for _, pod := range added {
		uids[pod.UID], taken[runtime.RefOf(pod).FullName()] = true, true
	}
	return slices.DeleteFunc(slices.Clone(h.deps.Pods.Pods()), func(pod *v1.Pod) bool {
		_, refused := h.refused[pod.UID]
		return refused || uids[pod.UID] || taken[runtime.RefOf(pod).FullName()] || h.deps.Workers.State(pod.UID).Terminated() || h.finished(pod)
	})
}

// finished reports whether the pod has Succeeded or Failed.
func (h *Handler) finished(pod *v1.Pod) bool {
	s, ok := h.deps.Status.Get(pod.UID)
	return ok && (s.Phase == v1.PodFailed || s.Phase == v1.PodSucceeded)
}

// oldestFirst returns the pods by creation time; those without one, as static
// pods, keep their order and come first.
func oldestFirst(pods []*v1.Pod) []*v1.Pod {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return sorted
}

package syncloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// sweepPeriod is how often the handler looks for orphans though nothing hints at
// one.
const sweepPeriod = time.Minute

// listTimeout bounds the handler's own looks at the runtime: the loop waits for
// them, and a healthy runtime answers in milliseconds.
const listTimeout = 10 * time.Second

// PodManager holds the desired state; *podmanager.Manager is one.
type PodManager interface {
	Set(pod *v1.Pod)
	Remove(pod *v1.Pod)
	ByUID(uid types.UID) (*v1.Pod, bool)
	// Pods returns all desired pods without mirror pods.
	Pods() []*v1.Pod
}

// Workers runs the pods; *podworkers.Workers is one.
type Workers interface {
	UpdatePod(u podworkers.Update)
	SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.State
	State(uid types.UID) podworkers.State
}

// Statuses keeps the API status of pods; *status.Manager is one.
type Statuses interface {
	Get(uid types.UID) (v1.PodStatus, bool)
	Set(pod *v1.Pod, s v1.PodStatus)
	// Prune drops the pods that keep does not want.
	Prune(keep func(uid types.UID) bool)
}

// ProbeCleaner ends the probes of pods that are gone; *prober.Manager is one.
type ProbeCleaner interface {
	Cleanup(keep func(uid types.UID) bool)
}

// PodDirs removes what a gone pod has left in its directory; *volume.Manager is
// one.
type PodDirs interface {
	// Remove takes down the volumes below the directory and removes it. It must
	// refuse to cross a mount.
	Remove(ctx context.Context, ref runtime.PodRef, podDir string) error
}

// Checkpoint keeps pods on disk, to be restored after a reboot;
// *podconfig/checkpoint.Store is one. Its methods must not wait for the disk.
type Checkpoint interface {
	// Keep is told each pod that was admitted, and again when it changes in more than
	// its status.
	Keep(pod *v1.Pod)
	// Drop is told each pod that was refused or that its source wants no more. It may
	// never have been kept.
	Drop(uid types.UID)
	// Prune is told, once every source has delivered, which pods are desired and
	// admitted: all others are dropped.
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

	// refused are desired pods that were not admitted; they have no worker.
	refused map[types.UID]struct{}
	// before are the pods that ran before this agent came and that no worker knows
	// yet; nil when the first sweep has seen to them.
	before []*runtime.Pod
	// sweep says that the runtime or the disk may hold pods that nobody wants.
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

// Prepare takes note of what an earlier agent has left running, so that
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

// HandlePodAdditions admits the pods, the oldest first, and gives them to their
// workers. A pod that ran under the same full name before this agent came is
// stopped first.
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

// endPredecessors has what an earlier agent ran under the pod's full name stopped.
// It is an orphan already, though not all sources have been seen: a full name is
// one pod's at a time, and it is this one's now. The worker of the pod waits for
// its end, as the two would bind the same ports and write the same directories.
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

// HandlePodRemoves has the pods stopped.
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

// HandlePodReconcile takes over what the source says of the status, as readiness
// gates; the worker merges it.
func (h *Handler) HandlePodReconcile(pods []*v1.Pod) {
	for _, pod := range pods {
		h.deps.Pods.Set(pod)
		if len(pod.Spec.ReadinessGates) > 0 {
			h.HandlePodSyncs([]*v1.Pod{pod})
		}
	}
}

// HandlePodSyncs has the workers of the pods look at once.
func (h *Handler) HandlePodSyncs(pods []*v1.Pod) {
	for _, pod := range pods {
		if _, refused := h.refused[pod.UID]; refused || runtime.IsMirror(pod) {
			continue
		}
		h.update(podworkers.Update{Type: podworkers.Sync, Pod: pod})
	}
}

// Observe takes note of an event about a pod that nobody wants here, so that the
// next cleanup looks for it. It is to be called from the loop's goroutine.
func (h *Handler) Observe(ev pleg.PodEvents) {
	if _, desired := h.deps.Pods.ByUID(ev.Pod.UID); !desired && !h.deps.Workers.State(ev.Pod.UID).Known() {
		h.sweep = true
	}
}

// HandlePodCleanups is the housekeeping. Only when something hints at an orphan,
// and once a minute, does it ask the runtime and read the disk.
func (h *Handler) HandlePodCleanups(ctx context.Context) error {
	desired := func(uid types.UID) bool {
		_, ok := h.deps.Pods.ByUID(uid)
		return ok
	}
	wanted := h.deps.Pods.Pods()
	if len(h.refused) > 0 {
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(pod *v1.Pod) bool {
			_, refused := h.refused[pod.UID]
			return refused
		})
	}
	if h.deps.Checkpoint != nil {
		h.deps.Checkpoint.Prune(func(uid types.UID) bool {
			_, refused := h.refused[uid]
			return !refused && desired(uid)
		})
	}
	states := h.deps.Workers.SyncKnownPods(wanted)
	for _, pod := range wanted {
		// A pod whose former incarnation of the same UID has ended starts anew.
		if _, known := states[pod.UID]; !known {
			h.update(podworkers.Update{Type: podworkers.Create, Pod: pod})
			states[pod.UID] = h.deps.Workers.State(pod.UID)
		}
	}
	alive := func(uid types.UID) bool {
		_, known := states[uid]
		return known || desired(uid)
	}
	for uid, ref := range h.known {
		if _, known := states[uid]; known {
			continue
		}
		delete(h.known, uid)
		if !alive(uid) { // it was forgotten since: see what it left behind
			h.sweep = true
			h.ended(ref)
			h.remains[uid] = true
		}
	}
	for uid, state := range states {
		if _, known := h.known[uid]; !known {
			h.known[uid] = refOf(uid, state)
		}
	}
	h.recheck()
	if h.deps.Prober != nil {
		h.deps.Prober.Cleanup(alive)
	}
	h.deps.Status.Prune(alive)

	if now := time.Now(); h.sweep || now.Sub(h.lastSweep) >= sweepPeriod {
		if err := h.sweepOrphans(ctx, alive); err != nil {
			h.sweep = true
			return err
		}
		h.sweep, h.lastSweep = false, now
	}
	return nil
}

// sweepOrphans stops running pods that have no worker, also those that are desired
// but were refused, and removes what pods that neither run nor are to be kept have
// left on disk and in the runtime. Orphans are added to what is known, so that the
// cleanup after their end sweeps again.
func (h *Handler) sweepOrphans(ctx context.Context, alive func(types.UID) bool) error {
	lctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed, err := h.deps.Runtime.ListPods(lctx)
	if err != nil {
		return fmt.Errorf("looking for orphaned pods: %w", err)
	}
	remains := map[types.UID]bool{}
	for _, pod := range listed {
		_, working := h.known[pod.UID]
		switch {
		case working:
		case pod.Running():
			why := "no source names it"
			if alive(pod.UID) {
				why = "it was refused"
			}
			h.log.Info("Stopping a pod that is not to run on this node", "pod", pod.PodRef, "why", why)
			h.update(podworkers.Update{Type: podworkers.Kill, Orphan: pod})
		case !alive(pod.UID):
			remains[pod.UID] = true
			if !h.remains[pod.UID] { // maybe of an earlier agent, which did not get to report it
				h.ended(pod.PodRef)
			}
		}
	}
	h.before, h.remains = nil, remains
	if len(remains) > 0 {
		h.opts.Gone()
	}
	return h.removeDirs(ctx, alive)
}

// removeDirs removes the directories of pods that are not to be kept.
func (h *Handler) removeDirs(ctx context.Context, alive func(types.UID) bool) error {
	entries, err := os.ReadDir(h.opts.PodsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for directories of gone pods: %w", err)
	}
	var errs []error
	for _, e := range entries {
		uid := types.UID(e.Name())
		if _, ending := h.known[uid]; ending || alive(uid) || !e.IsDir() {
			continue
		}
		dir := filepath.Join(h.opts.PodsDir, e.Name())
		if err := h.deps.Dirs.Remove(ctx, runtime.PodRef{UID: uid}, dir); err != nil {
			errs = append(errs, fmt.Errorf("removing the directory of gone pod %s: %w", uid, err))
			continue
		}
		h.log.V(2).Info("Removed the directory of a gone pod", "podUID", uid, "dir", dir)
	}
	return errors.Join(errs...)
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

// refOf returns the reference of a pod of which only the state of its worker is known.
func refOf(uid types.UID, s podworkers.State) runtime.PodRef {
	name, namespace, _ := strings.Cut(s.FullName, "_") // neither can have an underscore
	return runtime.PodRef{UID: uid, Name: name, Namespace: namespace}
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

// active returns the desired pods that take something from the node, without
// those that are about to be judged and those whose full name a judged one takes
// over: what they hold, their successors get.
func (h *Handler) active(judged []*v1.Pod) []*v1.Pod {
	uids, taken := make(map[types.UID]bool, len(judged)), make(map[string]bool, len(judged))
	for _, pod := range judged {
		uids[pod.UID], taken[runtime.RefOf(pod).FullName()] = true, true
	}
	return slices.DeleteFunc(slices.Clone(h.deps.Pods.Pods()), func(pod *v1.Pod) bool {
		_, refused := h.refused[pod.UID]
		return refused || uids[pod.UID] || taken[runtime.RefOf(pod).FullName()] || h.deps.Workers.State(pod.UID).Terminated() || h.finished(pod)
	})
}

// finished reports whether the pod has ended by itself and only waits to go.
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

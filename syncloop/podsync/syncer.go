package podsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// Deps are the parts that a Syncer works with. All but Prober are required.
type Deps struct {
	Runtime runtime.Runtime
	Cache   runtime.StatusCache
	Status  status.Manager
	Volumes volume.Manager
	// Images pulls the images of containers and image volumes. nil: an [images.Base].
	Images images.Manager
	// Prober runs the probes. nil: no probes are run.
	Prober prober.Manager
	// Join are components that join the lives of pods, after those for volumes and pull secrets; see [Syncer.Steps].
	Join []lifecycle.Component
}

// Options are the settings of a [Syncer].
type Options struct {
	// PodsDir is the directory that holds a directory for each pod. Required, as an
	// absolute path.
	PodsDir string
	// Host describes the machine to pods. Required.
	Host *runtime.Host
	// HostIPs returns the addresses of the node as they are now, none while they are unknown, in
	// place of Host.IPs. It must be fast, and safe for concurrent use. nil: Host.IPs.
	HostIPs func() []string
	// Allocatable returns what pods can have of the node as it is now, in place of Host.Allocatable. It must be fast,
	// and safe for concurrent use. nil: Host.Allocatable.
	Allocatable func() v1.ResourceList
	// Objects returns the secrets and config maps that pods refer to. nil: there are
	// none.
	Objects runtime.Objects
	// ServiceEnv returns the environment variables of services that the containers of the
	// pod get, see [runtime.PodSync]. nil: there are none.
	ServiceEnv func(ctx context.Context, pod *v1.Pod) ([]v1.EnvVar, error)
	// PullSecrets returns the image pull secrets of a pod. nil: those that the pod names
	// in imagePullSecrets, from Objects.
	PullSecrets func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error)
	// ResizePending returns the condition PodResizePending of a pod that did not get the
	// resources that it has requested; ok is false if there is none. It must not block. nil: no
	// pod has it.
	ResizePending func(uid types.UID) (c v1.PodCondition, ok bool)
	// NetworkReady returns an error while only pods with the host's network can be
	// started. nil: the network is always ready.
	NetworkReady func() error
	// Removed reports whether a pod was removed from its source or deleted in the API, so that
	// its sandboxes are removed soon after its end; see [runtime.PodKill]. It must not block. nil: no pod is
	// known to be.
	Removed func(uid types.UID) bool
	// SpareStatic keeps all static pods from being evicted for their storage, as in kubelet. If
	// false, only those with a priority class of the system are kept: on a node without an API
	// server all pods are static, and limits must hold there, too.
	SpareStatic bool
	// NoStorageEviction keeps all pods from being evicted for their storage: neither size limits of emptyDir volumes
	// nor limits of ephemeral-storage are enforced (kubelet: localStorageCapacityIsolation: false).
	NoStorageEviction bool
	// Observer receives events of failed mounts, exceeded limits and deadlines, and records of the failure of pods that
	// exceed a limit or a deadline. The runtime gets its Event and Record with each call, for pulls, starts and kills.
	// Its Logger has failures to measure volumes.
	runtime.Observer
}

// Syncer is the default [podworkers.Syncer]. Make one with [New].
type Syncer struct {
	deps Deps
	opts Options
	log  logr.Logger
	// id is random. It differs from those of the Syncers of earlier agents.
	id string
	// host is Options.Host with the newest known addresses and allocatable resources. It is replaced when they change.
	host atomic.Pointer[runtime.Host]
	// subPath is the method of the volumes, bound once.
	subPath func(context.Context, runtime.SubPath) (string, error)
	// measured are the pods with limits, from their first SyncPod to SyncTerminatedPod.
	measured measurements
	// refreshes are the pods whose volumes are to be brought up to date during a SyncPod.
	refreshes *refreshes
	steps     *lifecycle.Steps
	// namedSecrets means that the pull secrets are those that pods name.
	namedSecrets bool

	mu sync.Mutex
	// pods has what is remembered of each pod, from its first call to the end of
	// SyncTerminatedPod.
	pods map[types.UID]*podState
}

var _ podworkers.Syncer = (*Syncer)(nil)

// New returns a Syncer, or an error that names everything that is missing.
func New(deps Deps, opts Options) (*Syncer, error) {
	opts.Observer, _ = opts.Queued()
	var errs []error
	require := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("podsync: %s is required", name))
		}
	}
	require(deps.Runtime != nil, "Deps.Runtime")
	require(deps.Cache != nil, "Deps.Cache")
	require(deps.Status != nil, "Deps.Status")
	require(deps.Volumes != nil, "Deps.Volumes")
	require(filepath.IsAbs(opts.PodsDir), "Options.PodsDir, as an absolute path,")
	require(opts.Host != nil, "Options.Host")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if deps.Images == nil {
		deps.Images = images.Base{}
	}
	if opts.Objects != nil {
		opts.Objects = namedObjects{opts.Objects}
	}
	namedSecrets := opts.PullSecrets == nil && opts.Objects != nil
	if opts.PullSecrets == nil {
		opts.PullSecrets = pullSecrets(opts.Objects)
	}
	s := &Syncer{
		deps: deps, opts: opts, log: opts.Logger, id: strconv.FormatUint(rand.Uint64(), 36),
		subPath: deps.Volumes.SubPath, pods: map[types.UID]*podState{},
		measured: measurements{wake: flow.NewSignal()}, refreshes: newRefreshes(), namedSecrets: namedSecrets,
	}
	components := []lifecycle.Component{volumes{s}, secretsComponent{opts.PullSecrets}}
	if opts.ServiceEnv != nil {
		components = append(components, serviceEnv{opts.ServiceEnv})
	}
	var err error
	if s.steps, err = lifecycle.New(append(components, deps.Join...)...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	s.host.Store(opts.Host)
	return s, nil
}

// Steps returns the components that join the lives of pods: those for volumes, pull secrets and the variables of
// services, and those of Deps.Join. The handler of the sync loop needs it for the steps Admit and Gone.
func (s *Syncer) Steps() *lifecycle.Steps { return s.steps }

// currentHost returns the host with the addresses and allocatable resources that it has now. As long as they do not
// change, it is the same pointer.
func (s *Syncer) currentHost() *runtime.Host {
	known := s.host.Load()
	now := *known
	if s.opts.HostIPs != nil {
		now.IPs = s.opts.HostIPs()
	}
	if s.opts.Allocatable != nil {
		now.Allocatable = s.opts.Allocatable()
	}
	same := func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }
	if slices.Equal(now.IPs, known.IPs) && maps.EqualFunc(now.Allocatable, known.Allocatable, same) {
		return known
	}
	now.IPs = slices.Clone(now.IPs)
	s.host.Store(&now)
	return &now
}

// PodDir returns the directory of the pod with that UID.
func (s *Syncer) PodDir(uid types.UID) string { return filepath.Join(s.opts.PodsDir, string(uid)) }

// SyncPod brings the pod one step nearer to its spec. The result is terminal if the pod
// has finished by itself or must not run any longer. An error of the runtime that wraps a
// [*runtime.TerminalError] is returned wrapped: the workers fail the pod for it.
func (s *Syncer) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	observed *runtime.PodStatus) (podworkers.Result, error) {
	s.state(pod.UID).updated.Store(nil) // this call has a later one
	if typ == podworkers.Create {
		// The final phase of an earlier incarnation of the UID does not hold for this one.
		if err := s.measured.forget(ctx, pod.UID); err != nil {
			return podworkers.Result{}, fmt.Errorf("pod %s: %w", runtime.RefOf(pod), err)
		}
		s.forget(pod.UID)
		s.deps.Status.Forget(pod.UID)
		s.dropDeadline(pod)
	}
	if s.deps.Prober != nil {
		// Before the status: the prober takes over the results in the status that the API
		// server has. Otherwise containers are not ready from the restart of an agent until
		// their first probe.
		s.deps.Prober.AddPod(pod)
	}
	st := s.state(pod.UID)
	ctx = s.begin(ctx, st, pod)
	defer s.end(st)
	in := inputs{pod: pod, observed: observed}
	api, same := s.unchangedStatus(st, in)
	if !same {
		api = s.setStatus(st, in, nil)
	}
	if podspec.IsPhaseTerminal(api.Phase) {
		return podworkers.Result{Terminal: true}, nil
	}
	failed, recheck := s.mustFail(st, pod, observed, &api)
	if failed != nil {
		s.setStatus(st, in, failed.apply)
		if failed.eventType != "" {
			s.emit(runtime.RefOf(pod), failed.eventType, failed.reason, failed.message)
		}
		s.opts.Record.Emit(runtime.Record{
			Pod: runtime.RefOf(pod), Stage: runtime.StageDecided, Kind: runtime.KindFail, Reason: failed.reason,
			Message: failed.message,
		})
		return podworkers.Result{Terminal: true}, nil
	}

	var w waits
	res, err := s.startContainers(ctx, st, pod, observed, &w)
	w.apply(pod, observed, &res)
	s.announce(st, pod, w.by)
	s.setWaiting(st, res.Waiting, res.Changed)
	if len(w.by) == 0 || res.ResizeError != "" { // the resize of a pod that waits is not done
		s.setResized(st, pod, res, err)
	}
	atRest := !res.Changed && len(w.by) == 0 && len(res.Waiting) == 0 && res.ResizeError == "" &&
		!hasPolledVolumes(pod)
	return podworkers.Result{
		Changed: res.Changed, RetryAfter: flow.Soonest(res.RetryAfter, recheck), AtRest: atRest,
	}, err
}

// failure is the reason why a pod must not run any longer. The type of its event is
// kubelet's; it is empty if the event was emitted before.
type failure struct{ eventType, reason, message string }

// evicted is the failure of a pod that exceeds a limit of storage.
func evicted(message string) *failure { return &failure{reason: reasonEvicted, message: message} }

// apply makes the status that of the failure.
func (f *failure) apply(api *v1.PodStatus) {
	api.Phase, api.Reason, api.Message = v1.PodFailed, f.reason, f.message
}

// mustFail returns why the pod must fail although it has not finished. If it returns nil, the
// duration is the time until the next check, 0 for never.
func (s *Syncer) mustFail(st *podState, pod *v1.Pod, observed *runtime.PodStatus,
	api *v1.PodStatus) (*failure, time.Duration) {
	now := time.Now()
	past, recheck := st.pastActiveDeadline(pod, api, now)
	if past {
		return &failure{v1.EventTypeNormal, reasonDeadline, messageDeadline}, 0
	}
	if s.opts.NoStorageEviction || !measuredPod(pod, s.opts.SpareStatic) {
		s.measured.stop(pod.UID) // an update may have taken its limits away
		return nil, recheck
	}
	if message := s.measured.note(pod, observed, st.dir); message != "" {
		return evicted(message), 0
	}
	return nil, recheck
}

// startContainers calls the step Prepare, and the runtime.
func (s *Syncer) startContainers(
	ctx context.Context, st *podState, pod *v1.Pod, observed *runtime.PodStatus, w *waits,
) (res runtime.SyncResult, err error) {
	ref := runtime.RefOf(pod)
	network := s.networkReady(pod)
	if network != nil && !observed.ContainersRunning() {
		return waitingAll(pod, observed, network), fmt.Errorf("pod %s: %w", ref, network)
	}
	dir := st.dir
	if err := os.MkdirAll(dir, 0o750); err != nil {
		s.failed(ref, "Failed", "error making pod data directories: "+err.Error())
		return waitingAll(pod, observed, err), fmt.Errorf("pod %s: making its directory: %w", ref, err)
	}
	// Also if they cannot be prepared: containers of an earlier agent run already.
	handled := s.handleRunning(ctx, st, pod, observed)
	defer func() { err = errors.Join(err, handled) }()
	ready, err := s.steps.Prepare(ctx, lifecycle.PrepareRequest{Pod: pod, Observed: observed, Dir: dir})
	// A failure of a later component leaves the volumes set up.
	defer func() { res.RetryAfter = flow.Soonest(flow.Soonest(res.RetryAfter, ready.RetryAfter), st.started()) }()
	if w.failed(err) == nil && err != nil {
		return res, nil
	}
	if err != nil {
		cause := err
		if component := (*lifecycle.ComponentError)(nil); errors.As(err, &component) &&
			!errors.As(err, new(*runtime.PanicError)) {
			cause = component.Err // its text is for users
		}
		return waitingAll(pod, observed, cause), fmt.Errorf("pod %s: preparing it: %w", ref, err)
	}
	if network != nil { // the containers that run go on, and read their files
		return waitingAll(pod, observed, network), fmt.Errorf("pod %s: %w", ref, network)
	}
	res, err = s.callRuntime(ctx, st, runtime.PodSync{
		Pod:           pod,
		Status:        observed,
		Probes:        s.probes(),
		EnsureImage:   s.ensureImage(pod, ready.PullSecrets, st.event),
		Objects:       s.opts.Objects,
		EditSandbox:   w.editSandbox(s.steps.SandboxEdits(pod)),
		EditContainer: w.editContainer(s.steps.ContainerEdits(pod)),
		Volumes:       ready.Volumes,
		SubPath:       s.subPath,
		HoldResize:    ready.ResizeError != "",
		Dir:           dir,
		Host:          s.currentHost(),
		Event:         st.event,
		Record:        s.opts.Record,
		SandboxReady:  st.sandboxReady,
	}, w)
	res.Changed = res.Changed || ready.Changed
	if ready.ResizeError != "" {
		res.ResizeError = ready.ResizeError
		err = errors.Join(err, fmt.Errorf("pod %s: resizing it: %s", ref, ready.ResizeError))
	}
	return res, err
}

// handleRunning calls the step Running if a container runs for which it was not called.
func (s *Syncer) handleRunning(ctx context.Context, st *podState, pod *v1.Pod, observed *runtime.PodStatus) error {
	if !s.steps.HandleRunning() || observed == nil {
		return nil
	}
	running, fresh := map[string]struct{}{}, false
	for i := range observed.Containers {
		c := &observed.Containers[i]
		if c.State != runtime.ContainerRunning {
			continue
		}
		running[c.ID.ID] = struct{}{}
		if _, known := st.running[c.ID.ID]; !known {
			fresh = true
		}
	}
	if fresh {
		if err := s.steps.Running(ctx, pod, observed); err != nil {
			// Not wrapped: no error of this step fails the pod, also not a TerminalError.
			return fmt.Errorf("pod %s: handling that its containers run: %v", runtime.RefOf(pod), err)
		}
	}
	st.running = running
	return nil
}

// networkReady returns an error, and reports it, while no container of the pod can be started
// because the network is not ready.
func (s *Syncer) networkReady(pod *v1.Pod) error {
	if s.opts.NetworkReady == nil || podspec.HasHostNetwork(pod) {
		return nil
	}
	err := s.opts.NetworkReady()
	if err != nil {
		s.failed(runtime.RefOf(pod), "NetworkNotReady", "network is not ready: "+err.Error())
	}
	return err
}

func (s *Syncer) warn(pod *v1.Pod, reason, message string) {
	s.emit(runtime.RefOf(pod), v1.EventTypeWarning, reason, message)
}

func (s *Syncer) emit(ref runtime.PodRef, eventType, reason, message string) {
	s.opts.Event.Emit(runtime.Event{Pod: ref, Type: eventType, Reason: reason, Message: message})
}

// failed emits a warning about the error of a call, which the pod workers log.
func (s *Syncer) failed(ref runtime.PodRef, reason, message string) {
	s.opts.Event.Emit(runtime.Event{Pod: ref, Type: v1.EventTypeWarning, Reason: reason, Message: message,
		Logged: true})
}

// kill stops the pod in the runtime. A kill that was cut off is no failure: it follows
// again.
func (s *Syncer) kill(ctx context.Context, ref runtime.PodRef, kill runtime.PodKill) error {
	underway.From(ctx).Set(stepKill)
	err := s.deps.Runtime.KillPod(ctx, kill)
	if err != nil && ctx.Err() == nil {
		s.failed(ref, "FailedKillPod", "error killing pod: "+err.Error())
	}
	return err
}

// SyncTerminatingPod implements [podworkers.Syncer].
func (s *Syncer) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, observed *runtime.PodStatus,
	t podworkers.Termination) error {
	ref, st := runtime.RefOf(pod), s.state(pod.UID)
	ctx = s.begin(ctx, st, pod)
	defer s.end(st)
	if s.deps.Prober != nil && observed.ContainersRunning() {
		// After a restart of the agent no SyncPod has added it: its containers would not be
		// ready any more, and get no traffic for the rest of their grace period.
		s.deps.Prober.AddPod(pod)
	}
	s.setStatus(st, inputs{pod, observed, phaseTerminating}, t.Status)
	if s.deps.Prober != nil {
		s.deps.Prober.StopLivenessAndStartup(pod)
	}
	kill := runtime.PodKill{
		Pod: pod, Status: observed, GracePeriod: t.GracePeriod, Dir: s.PodDir(pod.UID),
		Event: s.opts.Event, Record: s.opts.Record,
	}
	if s.opts.Removed != nil {
		kill.Removed = s.opts.Removed(pod.UID)
	}
	if kill.GracePeriod != nil && observed.ContainersRunning() {
		left := s.graceLeft(ref, *kill.GracePeriod)
		kill.GracePeriod = &left
	}
	if err := s.kill(ctx, ref, kill); err != nil {
		return fmt.Errorf("pod %s: stopping it: %w", ref, err)
	}
	if s.deps.Prober != nil {
		s.deps.Prober.RemovePod(pod)
	}
	underway.From(ctx).Set(stepInspect)
	after, err := s.inspectStopped(ctx, ref)
	if err != nil {
		return fmt.Errorf("pod %s: checking that it has stopped: %w", ref, err)
	}
	if after.ContainersRunning() {
		s.setStatus(st, inputs{pod, after, phaseTerminating}, t.Status)
		return fmt.Errorf("pod %s: containers still run after it was stopped; it will be stopped again", ref)
	}
	if err := s.steps.Stopped(ctx, lifecycle.EndedRequest{Pod: pod, Observed: after,
		Dir: s.PodDir(pod.UID)}); err != nil {
		return fmt.Errorf("pod %s: taking it down: %w", ref, err)
	}
	s.setStatus(st, inputs{pod, after, phaseTerminated}, t.Status)
	return nil
}

// settleTime bounds the time for which a runtime may report that a container runs which has ended.
const settleTime = time.Second

// inspectStopped returns the status of a pod that was stopped. If a container ends by itself as it is stopped,
// containerd returns at once, and reports for some milliseconds that the container runs.
func (s *Syncer) inspectStopped(ctx context.Context, ref runtime.PodRef) (after *runtime.PodStatus, err error) {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		after, err = s.deps.Cache.Newer(ctx, ref, s.deps.Cache.Now())
		if err != nil || !after.ContainersRunning() || wait > settleTime || !flow.Sleep(ctx, wait) {
			return after, err
		}
	}
}

// SyncTerminatingOrphan stops a pod that has no spec. If gracePeriod is nil, the
// grace period recorded with the containers counts.
func (s *Syncer) SyncTerminatingOrphan(ctx context.Context, orphan *runtime.Pod, observed *runtime.PodStatus,
	gracePeriod *int64) error {
	kill := runtime.PodKill{Status: observed, GracePeriod: gracePeriod, Dir: s.PodDir(orphan.UID), Event: s.opts.Event,
		Record: s.opts.Record}
	if observed.ContainersRunning() {
		grace := recordedGrace(observed)
		if gracePeriod != nil {
			grace = *gracePeriod
		}
		if left := s.graceLeft(orphan.PodRef, grace); left < grace {
			kill.GracePeriod = &left
		}
	}
	if err := s.kill(ctx, orphan.PodRef, kill); err != nil {
		return fmt.Errorf("orphaned pod %s: stopping it: %w", orphan.PodRef, err)
	}
	return nil
}

// SyncTerminatedPod calls the step Ended for a pod that has stopped, and makes its status
// final.
func (s *Syncer) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, observed *runtime.PodStatus) error {
	ref, st := runtime.RefOf(pod), s.state(pod.UID)
	ctx = s.begin(ctx, st, pod)
	defer s.end(st)
	s.setStatus(st, inputs{pod, observed, phaseTerminated}, nil)
	underway.From(ctx).Set(stepMeasure)
	if err := s.measured.forget(ctx, pod.UID); err != nil {
		return fmt.Errorf("pod %s: %w", ref, err)
	}
	if err := s.steps.Ended(ctx, lifecycle.EndedRequest{Pod: pod, Observed: observed,
		Dir: s.PodDir(pod.UID)}); err != nil {
		return fmt.Errorf("pod %s: taking it down: %w", ref, err)
	}
	s.forget(pod.UID) // before Terminate: no refresh changes a final status
	s.deps.Status.Terminate(pod)
	return nil
}

// probes returns the results of the prober; nil if there is no prober.
func (s *Syncer) probes() runtime.ProbeResults {
	if s.deps.Prober == nil {
		return nil
	}
	return s.deps.Prober
}

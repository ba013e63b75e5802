package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// SyncPod implements [runtime.Runtime]. It carries out what [plan.Compute] decides:
// containers are stopped in parallel, images are fetched in parallel and while the sandbox
// is created, and containers are started one after the other in the order of the spec,
// each when the postStart hook of the one before has ended. Pods rely on that order.
//
// A container in back-off is no error: the result has its waiting reason, and the time
// until the end of the back-off.
func (r *Runtime) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	if req.Pod == nil || req.Host == nil {
		return runtime.SyncResult{}, errors.New("SyncPod: a pod and its host are required")
	}
	ref := runtime.RefOf(req.Pod)
	s := &podSync{
		r: r, PodSync: req, ref: ref, about: "pod " + ref.String(),
		waiting: map[string]v1.ContainerStateWaiting{},
	}
	if s.Status == nil {
		s.Status = &runtime.PodStatus{PodRef: s.ref}
	}
	err := s.run(ctx)
	res := runtime.SyncResult{Changed: s.changed, RetryAfter: s.retryAfter, ResizeError: s.resizeError}
	if len(s.waiting) > 0 {
		res.Waiting = s.waiting
	}
	return res, err
}

// podSync is one SyncPod in progress. Only its images are used by more than one goroutine.
type podSync struct {
	runtime.PodSync
	r     *Runtime
	ref   runtime.PodRef
	about string

	// The result.
	changed    bool
	retryAfter time.Duration
	waiting    map[string]v1.ContainerStateWaiting
	// resizeError is [runtime.SyncResult].ResizeError.
	resizeError string

	// The sandbox of the containers to start, set by prepare and makeSandbox.
	pod       *translate.Pod
	handler   string
	config    *criv1.PodSandboxConfig
	sandboxID string
	ips       []string
	images    *images
	hosts     string // path of the hosts file, "" until it was written
}

// aboutContainer names a container of the pod in errors.
func (s *podSync) aboutContainer(name string) string { return s.about + ", container " + name }

func (s *podSync) run(ctx context.Context) error {
	acts := s.plan()
	for name, why := range acts.Waiting {
		s.wait(name, why, 0)
		s.containerEvents(name).warning("BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s(%s)",
			name, s.ref.FullName(), s.ref.UID))
	}
	s.retry(acts.RetryAfter)

	var errs []error
	if acts.KillPod {
		if acts.CreateSandbox || s.Status.Running() {
			if acts.CreateSandbox {
				s.events().normal("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
			}
			s.changed = true
			gate := s.r.ends
			if acts.CreateSandbox {
				gate = s.r.restarts
			}
			if err := s.r.stopPod(ctx, runtime.PodKill{Pod: s.Pod, Status: s.Status, Dir: s.Dir, Event: s.Event,
				Record: s.Record}, s.ref, gate); err != nil {
				return err
			}
		}
	} else {
		// A container that could not be stopped is not started beside itself.
		failed, err := s.kill(ctx, acts.Kill)
		if len(acts.Remove) > 0 {
			return errors.Join(err, s.remove(ctx, acts.Remove, failed))
		}
		errs = append(errs, err)
		acts.Start = slices.DeleteFunc(acts.Start, func(st plan.Start) bool { return failed[st.Container.Name] })
		errs = append(errs, s.resize(ctx, acts), s.finishPostStarts(ctx, acts))
	}
	if !acts.CreateSandbox && len(acts.Start) == 0 {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, s.start(ctx, acts))...)
}

// plan computes what is to be done, and updates the memory of the pod.
func (s *podSync) plan() plan.Actions {
	in := plan.Input{Pod: s.Pod, Status: s.Status, Probes: s.Probes, Now: time.Now(), Backoff: s.r.opts.Backoff}
	s.r.pods.with(s.ref.UID, func(p *podMemory) {
		in.Crashes = p.crashes
		removed := func(id string) bool {
			return !slices.ContainsFunc(s.Status.Containers,
				func(c runtime.ContainerStatus) bool { return c.ID.ID == id })
		}
		deleteKeys(p.hooked, removed)
		deleteKeys(p.postStarted, removed)
		deleteKeys(p.resized, removed)
	})
	acts := plan.Compute(in) // without the lock: there is no other sync of this pod
	s.r.pods.with(s.ref.UID, func(p *podMemory) {
		p.crashes, acts.Resize = acts.Crashes, dropResized(p, s.Pod, acts.Resize)
	})
	if s.HoldResize {
		acts.Resize = nil
	}
	if s.Record != nil {
		for _, r := range plan.Records(in, acts) {
			s.Record(r)
		}
	}
	return acts
}

func deleteKeys[V any](m map[string]V, del func(key string) bool) {
	maps.DeleteFunc(m, func(key string, _ V) bool { return del(key) })
}

// kill stops containers in parallel and returns the names of those that it could not stop.
func (s *podSync) kill(ctx context.Context, kills []plan.Kill) (failed map[string]bool, err error) {
	var (
		wg   sync.WaitGroup
		errs = make([]error, len(kills))
	)
	failed = map[string]bool{}
	if len(kills) == 0 {
		return failed, nil
	}
	var grace int64
	for i := range kills {
		grace = max(grace, kills[i].GracePeriod)
	}
	leave, err := s.r.restarts.enter(ctx, first, stopSteps(len(kills), podspec.Seconds(grace))...)
	if err != nil {
		for i := range kills {
			failed[kills[i].Container.Name] = true
		}
		return failed, fmt.Errorf("%s: stopping containers: %w", s.about, err)
	}
	defer leave()
	began := time.Now()
	for i := range kills {
		k := &kills[i]
		s.changed = true
		wg.Go(func() {
			errs[i] = s.r.stopContainer(ctx, &containerStop{
				ref: s.ref, pod: s.Pod, status: s.Status, dir: s.Dir, container: &k.Container,
				events: s.containerEvents(k.Container.Name),
				grace:  k.GracePeriod, began: began, message: k.Message,
			})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			failed[kills[i].Container.Name] = true
		}
	}
	return failed, errors.Join(errs...)
}

// remove removes instances one after the other, so that all containers of the pod start anew in the next sync, which is
// due at once. The failed ones could not be stopped: what comes after them stays.
func (s *podSync) remove(ctx context.Context, list []runtime.ContainerStatus, failed map[string]bool) error {
	for i := range list {
		n := &list[i]
		if failed[n.Name] && n.State != runtime.ContainerExited && n.State != runtime.ContainerCreated {
			return nil // kill has the error
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: removing its containers to restart all: %w", s.about, flow.Ended(ctx))
		}
		s.changed = true
		if err := s.r.removeOnce(ctx, n.ID, keepLogs); err != nil {
			return fmt.Errorf("%s: removing its containers to restart all: %w", s.about, err)
		}
	}
	s.retry(time.Nanosecond)
	return nil
}

// start creates the sandbox, if it is due, and starts the containers.
func (s *podSync) start(ctx context.Context, acts plan.Actions) (err error) {
	if acts.CreateSandbox {
		defer func() {
			if waits(err) != nil {
				return
			}
			s.r.opts.Measure.Emit(PodStart{Pod: s.ref, UserNamespace: podspec.HasUserNamespace(s.Pod), Err: err})
		}()
	}
	if err := s.prepare(ctx, acts); waits(err) != nil {
		return err
	} else if err != nil {
		err = fmt.Errorf("%s: CreatePodSandboxError: failed to generate sandbox config: %w", s.about, err)
		s.events().logged("FailedCreatePodSandBox", "Failed to create pod sandbox: "+errors.Unwrap(err).Error())
		s.waitForSandbox(ctx, errors.Unwrap(err))
		return err
	}
	// No pull outlives the sync.
	ctx, cancel := context.WithCancel(ctx)
	s.fetchImages(ctx, acts.Start)
	defer s.images.release() // the containers exist now
	defer s.images.wg.Wait()
	defer cancel()

	if acts.CreateSandbox {
		if err := s.makeSandbox(ctx); err != nil {
			s.waitForSandbox(ctx, err)
			return err
		}
	} else {
		s.sandboxID, s.ips = acts.SandboxID, s.Status.IPs
	}

	var errs []error
	for i := range acts.Start {
		if ctx.Err() != nil {
			return errors.Join(append(errs, fmt.Errorf("%s: starting its containers: %w", s.about, flow.Ended(ctx)))...)
		}
		st := &acts.Start[i]
		began := time.Now()
		err := s.startContainer(ctx, st)
		started := ContainerStart{Pod: s.ref, Container: st.Container.Name, Kind: st.Kind}
		var w *waitError
		if errors.As(err, &w) && waits(err) != nil {
			s.wait(st.Container.Name, v1.ContainerStateWaiting{Reason: w.reason, Message: w.message}, 0)
			errs = append(errs, err)
			continue
		}
		if w != nil {
			started.Reason = w.reason
		}
		s.r.opts.Measure.Emit(started)
		if w != nil && ctx.Err() == nil {
			s.wait(st.Container.Name, v1.ContainerStateWaiting{Reason: w.reason, Message: w.message}, w.retryAfter)
			if w.backingOff {
				continue
			}
		}
		s.containerEvents(st.Container.Name).done(ctx,
			runtime.Record{Kind: runtime.KindStartContainer, Attempt: uint32(max(0, st.RestartCount)),
				Error: startFailure(w)}, began, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, container %s: %w", s.about, st.Container.Name, err))
		}
	}
	return errors.Join(errs...)
}

// volumeGroups returns the groups of the volumes in ascending order.
func volumeGroups(volumes map[string]runtime.Volume) []int64 {
	var groups []int64
	for _, v := range volumes {
		if v.Group != nil {
			groups = append(groups, *v.Group)
		}
	}
	slices.Sort(groups)
	return groups
}

// prepare computes the inputs of the configurations of sandbox and containers.
func (s *podSync) prepare(ctx context.Context, acts plan.Actions) (err error) {
	s.pod = &translate.Pod{Spec: s.Pod, Host: s.Host, Node: s.r.node(), Dir: s.Dir, Groups: volumeGroups(s.Volumes),
		HostProcesses: s.r.hostProcesses.Load()}
	if s.r.opts.CgroupParent != nil {
		s.pod.CgroupParent = s.r.opts.CgroupParent(s.Pod)
	}
	if path := s.Host.ResolvConf; path != "" {
		data, err := s.r.hostFiles.ReadFile(ctx, path, translate.MaxResolvConf)
		if err != nil {
			return fmt.Errorf("reading the host's resolver configuration: %w", err)
		}
		if s.pod.ResolvConf, err = translate.ParseResolvConf(data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if s.handler, err = translate.RuntimeHandler(s.Pod, s.r.opts.RuntimeHandler); err != nil {
		return fmt.Errorf("runtime class %s: %w", *s.Pod.Spec.RuntimeClassName, err)
	}
	if s.EditSandbox != nil && (acts.CreateSandbox || podspec.HasUserNamespace(s.Pod)) {
		// containers get that of the sandbox
		if s.pod.Edits, err = s.EditSandbox(ctx); err != nil {
			return err
		}
	}
	s.config, err = translate.SandboxConfig(s.pod, acts.Attempt)
	return err
}

// makeSandbox creates the sandbox and reads its addresses.
func (s *podSync) makeSandbox(ctx context.Context) error {
	for _, w := range translate.Warnings(s.pod) {
		s.events().warning(w.Reason, w.Message)
	}
	fail := func(err error) error {
		s.events().failure(ctx, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+reason(err))
		return fmt.Errorf("CreatePodSandboxError: %w", err)
	}
	if err := os.MkdirAll(s.config.GetLogDirectory(), 0o755); err != nil {
		return fail(fmt.Errorf("%s: making its log directory: %w", s.about, err))
	}
	// Containers of pods that have a sandbox go first, so that pods become ready one after the
	// other and not all at the end.
	leave, err := s.r.starts.enter(ctx, second, step{1, maxPlace})
	if err != nil {
		return fmt.Errorf("%s: waiting to start: %w", s.about, err)
	}
	defer leave()
	s.changed = true
	longer, stop := linger(ctx)
	defer stop()
	began := time.Now()
	// Twice the timeout, as in kubelet: this call sets up the pod's network.
	resp, err := call(longer, s.r, "RunPodSandbox", s.about, s.r.opts.CallTimeout, s.r.rs.RunPodSandbox,
		&criv1.RunPodSandboxRequest{Config: s.config, RuntimeHandler: s.handler})
	err = checkID("RunPodSandbox", s.about, resp.GetPodSandboxId(), err)
	s.events().done(ctx, runtime.Record{Kind: runtime.KindCreateSandbox, Attempt: s.config.GetMetadata().GetAttempt()},
		began, err)
	s.r.opts.Measure.Emit(SandboxStart{Pod: s.ref, RuntimeHandler: s.handler, Took: time.Since(began), Err: err})
	if err != nil {
		s.r.index.doubt(s.ref.UID)
		return fail(err)
	}
	s.sandboxID = resp.GetPodSandboxId()
	s.r.index.addSandbox(s.ref.UID, s.sandboxID, true)
	status := &runtime.SandboxStatus{
		Sandbox: runtime.Sandbox{
			ID: s.sandboxID, Attempt: s.config.GetMetadata().GetAttempt(), State: runtime.SandboxReady,
			CreatedAt: time.Now(),
		},
		HostNetwork: podspec.HasHostNetwork(s.Pod),
	}
	if !status.HostNetwork {
		status, err = s.r.inspectSandbox(ctx, s.about, s.sandboxID)
		if err != nil {
			s.events().failure(ctx, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: "+reason(err))
			return err
		}
		s.ips = status.IPs
	}
	if s.SandboxReady != nil {
		s.SandboxReady(*status)
	}
	return nil
}

// waitForSandbox gives the containers that were not created yet the reason why they wait.
// The reason is kubelet's; kubelet has no message.
func (s *podSync) waitForSandbox(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if c := (*callError)(nil); errors.As(err, &c) {
		err = c // without the names of the pod and the call
	}
	why := v1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "Failed to create pod sandbox: " +
		withoutIDs(reason(err))}
	if len(s.Pod.Spec.InitContainers) > 0 {
		why.Reason = "PodInitializing"
	}
	for _, c := range podspec.Containers(&s.Pod.Spec) {
		if s.Status.Newest(c.Name) == nil {
			s.wait(c.Name, why, 0)
		}
	}
}

// maxImagesAtOnce is the number of images that are fetched at the same time for one pod. A pod can have
// 1000 containers, and any number of volumes with images.
const maxImagesAtOnce = 32

// fetchImages starts to fetch the images of the containers, and those that they mount, each
// once.
func (s *podSync) fetchImages(ctx context.Context, starts []plan.Start) {
	s.images = &images{jobs: map[imageKey]*imageResult{}}
	places := make(chan struct{}, maxImagesAtOnce)
	ensure := s.EnsureImage
	if ensure == nil {
		ensure = runtime.EnsureImage
	}
	fetch := func(key imageKey, container string) {
		if s.images.jobs[key] != nil {
			return
		}
		res := &imageResult{done: make(chan struct{})}
		s.images.jobs[key] = res
		store := &imageStore{r: s.r, about: s.about, want: key.image, sandbox: s.config}
		job := &imageJob{
			request: runtime.ImageRequest{Image: key.image, Policy: key.policy, Container: container,
				HostProcesses: s.r.hostProcesses.Load(), Store: store},
			store: store, ensure: ensure, lease: s.r.uses.lease(s.ref),
		}
		s.images.leases = append(s.images.leases, job.lease)
		s.images.wg.Go(func() {
			defer close(res.done)
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				if err := runtime.Recover(
					func() error { res.image, res.err = job.ensureImage(ctx); return nil }); err != nil {
					res.err = waitFor(runtime.ReasonImagePull, err)
				}
			case <-ctx.Done():
				res.err = waitFor(runtime.ReasonImagePull, flow.Ended(ctx))
			}
		})
	}
	for i := range starts {
		c := starts[i].Container
		fetch(keyOf(c.Image, c.ImagePullPolicy), c.Name)
		for _, v := range imageVolumes(s.Pod, c) {
			fetch(keyOf(v.Image.Reference, v.Image.PullPolicy), "")
		}
	}
}

// wait records the waiting reason of a container.
func (s *podSync) wait(name string, why v1.ContainerStateWaiting, retryAfter time.Duration) {
	s.waiting[name] = why
	s.retry(retryAfter)
}

// retry records the time until the next sync is due; 0 is ignored.
func (s *podSync) retry(after time.Duration) {
	if after > 0 && (s.retryAfter == 0 || after < s.retryAfter) {
		s.retryAfter = after
	}
}

// containerEvents returns an emitter of events about one of the pod's containers.
// events emits events about the pod.
func (s *podSync) events() emitter { return emitter{pod: s.ref, emit: s.Event, record: s.Record} }

func (s *podSync) containerEvents(name string) emitter { return s.events().container(s.Pod, name) }

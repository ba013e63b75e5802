package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	kubelet "github.com/kubeletkit/kubeletkit/node/devices/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// preStartTimeout is that of kubelet.
const preStartTimeout = 30 * time.Second

// reasonWait is the reason of pods that wait for devices.
const reasonWait = "WaitingForDevices"

// reasonPrepare is the reason of events of pods whose devices are not ready.
const reasonPrepare = "FailedPrepareDevices"

// Prepare has the providers make the devices of the pod ready, once, and writes the checkpoint. Devices that were not
// made ready yet, and are missing or unhealthy, are exchanged for free ones. The pod waits while a provider is missing,
// and if none of its containers runs, while one of its devices is missing or unhealthy, as after a reboot, or with
// [Options].WaitForDevices while there are too few. An error of a provider is an event of the pod, too. It implements
// [lifecycle.Preparer].
func (m *Manager) Prepare(ctx context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	none := lifecycle.PrepareResponse{}
	if !extended(req.Pod) {
		return none, nil
	}
	if err := m.held.Load(); err != nil {
		return none, err
	}
	_, _ = m.held.Admit(req.Pod.UID) // it is read, and not suspended
	m.mu.Lock()
	managed := false
	for _, c := range podspec.Containers(&req.Pod.Spec) {
		managed = managed || len(m.requests(req.Pod, c)) > 0
	}
	if managed {
		entry := m.pod(req.Pod.UID)
		entry.checked = entry.checked || anyRuns(req.Observed)
	}
	m.mu.Unlock()
	if !managed {
		return none, nil
	}
	err := m.complete(ctx, req)
	if err == nil {
		err = m.held.Save()
	}
	if wait, failure := runtime.WithoutWaits(err); failure == nil && wait != nil {
		return none, err
	}
	if err != nil && ctx.Err() == nil {
		// the status does not have it if containers have ended before, as after a reboot
		m.node.Event(runtime.Event{Pod: runtime.RefOf(req.Pod), Type: v1.EventTypeWarning, Reason: reasonPrepare,
			Message: err.Error(), Logged: true})
	}
	return none, err
}

// complete makes all devices of the pod ready.
func (m *Manager) complete(ctx context.Context, req lifecycle.PrepareRequest) error {
	pod := req.Pod
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.EphemeralContainer || kind == podspec.InitContainer && m.over(req, c) {
			continue
		}
		m.mu.Lock()
		asked := m.requests(pod, c)
		m.mu.Unlock()
		for _, r := range asked {
			if err := m.ready(ctx, pod, c, r, runs(req.Observed, c.Name)); err != nil {
				return m.explain(ctx, req, c, err)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if entry := m.pods[pod.UID]; entry != nil {
		entry.checked = true
	}
	return nil
}

// over reports whether the init container has ended for good: it was not made ready for another start, and has
// succeeded in the sandbox of the pod, or a later container runs.
func (m *Manager) over(req lifecycle.PrepareRequest, c *v1.Container) bool {
	observed := req.Observed
	if podspec.IsSidecar(c) || observed == nil || len(observed.Sandboxes) == 0 ||
		observed.Sandboxes[0].State != runtime.SandboxReady {
		return false
	}
	m.mu.Lock()
	again := m.pods[req.Pod.UID] != nil && m.pods[req.Pod.UID].again[c.Name]
	m.mu.Unlock()
	if last := observed.Newest(c.Name); again || last != nil {
		return !again && last.State == runtime.ContainerExited && last.ExitCode == 0 &&
			last.SandboxID == observed.Sandboxes[0].ID
	}
	after := false
	for _, other := range podspec.Containers(&req.Pod.Spec) { // the instance of an init container may have been removed
		if after && runs(observed, other.Name) {
			return true
		}
		after = after || other.Name == c.Name
	}
	return false
}

// explain returns the error of Prepare. A pod of which something has run does not fail for a shortage, and one of which
// something runs does not fail.
func (m *Manager) explain(ctx context.Context, req lifecycle.PrepareRequest, c *v1.Container, err error) error {
	var lacks *shortage
	var waits unavailable
	missing, few := errors.As(err, &waits), errors.As(err, &lacks)
	fails := missing && waits.refusal != "" && m.opts.FailWithoutProvider
	if refused := fails || few && !m.opts.WaitForDevices && !anyStarted(req.Observed); refused && ctx.Err() == nil &&
		!anyRuns(req.Observed) {
		if fails {
			err = errors.New(waits.refusal)
		}
		return refuse(err)
	}
	if missing || few {
		return lifecycle.Wait(reasonWait, fmt.Sprintf("container %q: %v", c.Name, err))
	}
	return fmt.Errorf("devices of container %q of pod %s: %w", c.Name, runtime.RefOf(req.Pod), err)
}

func anyRuns(observed *runtime.PodStatus) bool {
	return observed != nil && slices.ContainsFunc(observed.Containers,
		func(c runtime.ContainerStatus) bool { return c.State == runtime.ContainerRunning })
}

func anyStarted(observed *runtime.PodStatus) bool {
	return anyRuns(observed) || observed != nil && slices.ContainsFunc(observed.Containers,
		func(c runtime.ContainerStatus) bool { return !c.StartedAt.IsZero() })
}

func runs(observed *runtime.PodStatus, container string) bool {
	c := observed.Newest(container)
	return c != nil && c.State == runtime.ContainerRunning
}

// ready gives the container its devices of one resource, if it has none yet, and has the provider make them ready.
func (m *Manager) ready(ctx context.Context, pod *v1.Pod, c *v1.Container, r request, running bool) error {
	server, done, err := m.allocateIfNone(pod, c.Name, r, running)
	if err != nil || done {
		return err
	}
	ids, err := m.preferred(ctx, server, pod, c.Name, r.name)
	if err != nil {
		return err
	}
	edits, err := m.allocateBy(ctx, server, Request{Pod: pod, Container: c, IDs: ids})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.allocation(pod.UID, c.Name, r.name)
	if g == nil {
		return errReleased
	}
	message := kubelet.Encode(edits)
	if len(message) > maxAnswer {
		return fmt.Errorf("the provider of %s has returned %d bytes of environment variables, mounts, devices and "+
			"annotations; at most %d can be kept", r.name, len(message), maxAnswer)
	}
	if m.size()+2*len(message) > maxCheckpoint-maxCheckpoint/8 {
		return errTooLarge
	}
	if g.edits, err = kubelet.Decode(message); err != nil { // the container is created as after a restart of the agent
		return err
	}
	g.allocated, g.message = true, message
	m.held.Changed()
	return nil
}

// allocateIfNone gives the container its devices, if it has none, and returns their provider. done means that they are
// ready, or that the container runs: it was started before there was a provider, or by an earlier agent whose
// checkpoint is lost.
func (m *Manager) allocateIfNone(pod *v1.Pod, container string, r request,
	running bool) (by *server, done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, entry := m.pools[r.name], m.pod(pod.UID)
	g := m.allocation(pod.UID, container, r.name)
	if ready := g != nil && g.allocated; ready && entry.checked || running && !ready {
		return nil, true, nil
	}
	if err := p.present(pod.UID, r.name); err != nil {
		return nil, false, err
	}
	if g == nil {
		if err := m.allocateNow(pod, container, r, entry.near[container]); err != nil {
			if p.unowned() >= r.count {
				return nil, false, p.wait(pod.UID, err.Error(), "waiting for healthy devices of %s: %v", r.name, err)
			}
			p.waiting[pod.UID] = struct{}{} // unless it is refused
			return nil, false, err
		}
		g = m.allocation(pod.UID, container, r.name)
	}
	m.rechoose(pod, container, r.name, nil)
	return p.server, g.allocated, m.fit(pod, container, r.name)
}

// present has the pod wait, with an error, unless the provider has delivered its devices. mu is held.
func (p *pool) present(pod types.UID, name v1.ResourceName) error {
	switch {
	case p.server != nil:
		return nil
	case len(p.servers) > 0: // kubelet gives the devices of an earlier one
		return p.wait(pod, "", "waiting for the list of the devices of %s", name)
	case p.lost.IsZero():
		return p.wait(pod, noneHealthy(name), "waiting for the provider of %s, which is not there yet", name)
	}
	return p.wait(pod, noneHealthy(name), "waiting for the provider of %s, which is not there since %s", name,
		p.lost.Format(time.RFC3339))
}

// wait has the pod wait until the devices change or another pod releases one, and returns the error. refusal is what
// kubelet says of the pod. mu is held.
func (p *pool) wait(pod types.UID, refusal, format string, args ...any) error {
	p.waiting[pod] = struct{}{}
	return unavailable{fmt.Errorf(format, args...), refusal}
}

// noLonger is what kubelet says of a container whose devices are not healthy any more.
func noLonger(p *pool, name v1.ResourceName) string {
	if !p.serving() || len(p.healthy) == 0 {
		return noneHealthy(name)
	}
	return fmt.Sprintf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
}

// fit has the pod wait, with an error, unless all devices of the container can be used. mu is held.
func (m *Manager) fit(pod *v1.Pod, container string, name v1.ResourceName) error {
	p := m.pools[name]
	for _, id := range m.allocation(pod.UID, container, name).ids {
		switch p.health(id) {
		case v1.ResourceHealthStatusUnknown:
			return p.wait(pod.UID, noLonger(p, name),
				"waiting for the device %s of %s: its provider does not have it now", quote(id), name)
		case v1.ResourceHealthStatusUnhealthy:
			return p.wait(pod.UID, noLonger(p, name), "waiting for the device %s of %s: it is unhealthy", quote(id),
				name)
		}
	}
	return nil
}

// unowned returns the number of devices that nobody has, also of unhealthy ones.
func (p *pool) unowned() (n int64) {
	for id := range p.devices {
		if len(p.owners[id]) == 0 {
			n++
		}
	}
	return n
}

// preferred asks the provider for the devices that it prefers, if there is a choice, and returns those that the
// container gets.
func (m *Manager) preferred(ctx context.Context, by *server, pod *v1.Pod, container string,
	name v1.ResourceName) (ids []string, err error) {
	m.mu.Lock()
	c := m.choice(pod, container, name)
	m.mu.Unlock()
	question, ask := c.question()
	var liked []string
	if ask {
		call := underway.Begin(ctx, container, "GetPreferredAllocation of the provider of", string(name))
		defer call.End()
		ctx, cancel := context.WithTimeout(call, m.opts.CallTimeout)
		defer cancel()
		err := runtime.Recover(func() (err error) {
			liked, err = by.Prefer(ctx, question)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("the provider of %s cannot choose devices: %w", name, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.allocation(pod.UID, container, name)
	if g == nil {
		return nil, errReleased
	}
	if err := m.pools[name].present(pod.UID, name); err != nil { // all may have changed meanwhile
		return nil, err
	}
	if m.pools[name].server != by {
		return nil, fmt.Errorf("another provider of %s has taken the place of the one that was asked", name)
	}
	m.rechoose(pod, container, name, liked)
	return slices.Clone(g.ids), m.fit(pod, container, name)
}

var errReleased = errors.New("the devices were released meanwhile")

// allocateBy calls Allocate.
func (m *Manager) allocateBy(ctx context.Context, by *server, req Request) (edits runtime.ContainerEdits, err error) {
	call := underway.Begin(ctx, req.Container.Name, "Allocate of the provider of", string(by.Resource()))
	defer call.End()
	ctx, cancel := context.WithTimeout(call, m.opts.CallTimeout)
	defer cancel()
	begin := time.Now()
	err = runtime.Recover(func() (err error) {
		edits, err = by.Allocate(ctx, req)
		return err
	})
	m.node.Measure(Allocated{Resource: by.Resource(), Took: time.Since(begin)})
	if err != nil {
		err = fmt.Errorf("the provider of %s cannot allocate the devices %s: %w", by.Resource(), quote(req.IDs), err)
	}
	return edits, err
}

// quote returns an ID, or a list of them, for a message.
func quote(ids any) string { return text.Clip(fmt.Sprintf("%q", ids), 500) }

// EditContainer returns what the providers have answered, and has them prepare the start. It implements
// [lifecycle.ContainerEditor].
func (m *Manager) EditContainer(ctx context.Context, pod *v1.Pod,
	container *v1.Container) (all runtime.ContainerEdits, err error) {
	if len(container.Resources.Limits) == 0 {
		return all, nil
	}
	resize := runtime.ForResize(ctx)
	m.lock()
	var calls []func() error
	var answers []runtime.ContainerEdits
	for _, r := range m.requests(pod, container) {
		g := m.allocation(pod.UID, container.Name, r.name)
		if g == nil || !g.allocated {
			if resize {
				continue // it runs
			}
			if entry := m.pods[pod.UID]; entry != nil {
				entry.again[container.Name] = true
			}
			err = fmt.Errorf("container %q of pod %s does not have its devices of %s: it was not prepared",
				container.Name, runtime.RefOf(pod), r.name)
			break
		}
		answers = append(answers, g.edits)
		if server := m.pools[r.name].last; server != nil {
			req := Request{Pod: pod, Container: container, IDs: slices.Clone(g.ids)}
			calls = append(calls, func() error { return preStart(ctx, server, req) })
		}
	}
	m.mu.Unlock()
	if err != nil {
		return all, err
	}
	if !resize {
		for _, call := range calls {
			if err := call(); err != nil {
				return all, err
			}
		}
	}
	return merge(answers), nil
}

func preStart(ctx context.Context, by *server, req Request) error {
	call := underway.Begin(ctx, req.Container.Name, "PreStartContainer of the provider of", string(by.Resource()))
	defer call.End()
	ctx, cancel := context.WithTimeout(call, preStartTimeout)
	defer cancel()
	if err := runtime.Recover(func() error { return by.PreStart(ctx, req) }); err != nil {
		return fmt.Errorf("the provider of %s cannot prepare the start with the devices %s: %w", by.Resource(),
			quote(req.IDs), err)
	}
	return nil
}

// merge returns all edits. As with kubelet, of several with the same name or path in the container the first one
// counts.
func merge(answers []runtime.ContainerEdits) (all runtime.ContainerEdits) {
	seen := map[string]bool{}
	first := func(kind, name string) bool {
		again := seen[kind+name]
		seen[kind+name] = true
		return !again
	}
	for _, e := range answers {
		for _, v := range e.Env {
			if first("env ", v.Name) {
				all.Env = append(all.Env, v)
			}
		}
		for _, d := range e.Devices {
			if first("device ", d.ContainerPath) {
				all.Devices = append(all.Devices, d)
			}
		}
		for _, mount := range e.Mounts {
			if first("mount ", mount.ContainerPath) {
				all.Mounts = append(all.Mounts, mount)
			}
		}
		for key, value := range e.Annotations {
			if all.Annotations == nil {
				all.Annotations = map[string]string{}
			}
			if first("annotation ", key) {
				all.Annotations[key] = value
			}
		}
		for _, name := range e.CDIDevices {
			if first("CDI ", name) {
				all.CDIDevices = append(all.CDIDevices, name)
			}
		}
	}
	return all
}

// Ended releases the devices of the pod. It implements [lifecycle.EndedHandler].
func (m *Manager) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	m.held.Ended(req.Pod.UID)
	return nil
}

// Gone releases the devices of the pod. It implements [lifecycle.GoneHandler].
func (m *Manager) Gone(_ context.Context, req lifecycle.GoneRequest) error {
	m.held.Ended(req.Pod.UID)
	return nil
}

// releaseAll releases all devices of the pod. Pods that wait for such are synced then.
func (m *Manager) releaseAll(uid types.UID) (changed bool, then func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, waited := m.release(uid)
	return changed, func() { m.notify(nil, waited, false) }
}

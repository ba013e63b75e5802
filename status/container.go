package status

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Reasons of container states that no runtime reports, the same as kubelet's.
const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonStatusUnknown     = "ContainerStatusUnknown"
	reasonCompleted         = "Completed"
	reasonRestartingAll     = "RestartingAllContainers"
)

// Messages of container states that no runtime reports, the same as kubelet's.
const (
	messageLost     = "The container could not be located when the pod was terminated"
	messageVanished = "The container could not be located when the pod was deleted.  The container used to be Running"
	messageInferred = "Unable to get init container status from container runtime and pod has been initialized, " +
		"treat it as exited normally"
	messageRemoved = "The container is removed because RestartAllContainers in place"
)

// exitCodeLost is the exit code of an instance whose end was not observed. It is
// that of a process that was ended by SIGKILL.
const exitCodeLost = 137

// containers returns the statuses of the containers of one kind: init containers
// in the order of the spec, others sorted by name, as kubelet does.
func (g *generation) containers(kind podspec.ContainerKind, prev []v1.ContainerStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for k, c := range podspec.Containers(&g.Pod.Spec) {
		if k == kind {
			out = append(out, g.container(c, kind, findStatus(prev, c.Name)))
		}
	}
	if kind != podspec.InitContainer {
		slices.SortFunc(out, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

// container returns the status of one container; prev may be nil.
func (g *generation) container(c *v1.Container, kind podspec.ContainerKind,
	prev *v1.ContainerStatus) v1.ContainerStatus {
	var s v1.ContainerStatus
	newest, older := instances(g.Runtime, c.Name)
	switch {
	case newest != nil:
		s = observed(c, newest, prev, len(runtime.ResizeDue(g.Pod, c, kind, newest)) > 0)
		if older != nil && older.State == runtime.ContainerExited {
			s.LastTerminationState = exited(older)
		}
	case prev != nil && g.Runtime != nil && g.restartingAll && kind != podspec.EphemeralContainer:
		s = removed(prev)
	case prev != nil && (g.Runtime == nil || prev.State.Terminated != nil):
		s = *prev.DeepCopy()
	case kind == podspec.InitContainer && !podspec.IsSidecar(c) && g.Runtime != nil && g.mainCreated():
		// The instance was removed, and no status of it was kept. It has succeeded, since
		// main containers are created only after that.
		s = inferredDone(c, prev)
	default:
		s = g.absent(c, prev)
	}

	if why, ok := g.Waiting[c.Name]; ok && g.toBeStarted(c, kind, &s) {
		if s.State.Terminated != nil {
			s.LastTerminationState = s.State
		}
		s.State = v1.ContainerState{Waiting: &why}
	}
	s.VolumeMounts = volumeMounts(c, newest)
	g.probed(c, kind, &s)
	return s
}

// instances returns the two newest instances of the named container, nil where
// there is none.
func instances(status *runtime.PodStatus, name string) (newest, older *runtime.ContainerStatus) {
	if status == nil {
		return nil, nil
	}
	for i := range status.Containers {
		switch c := &status.Containers[i]; {
		case c.Name != name:
		case newest == nil:
			newest = c
		default:
			return newest, c
		}
	}
	return newest, nil
}

// observed is the status of a container of which the runtime has an instance.
func observed(c *v1.Container, inst *runtime.ContainerStatus, prev *v1.ContainerStatus,
	resizeDue bool) v1.ContainerStatus {
	s := v1.ContainerStatus{
		Name:               inst.Name,
		Image:              inst.Image,
		ImageID:            inst.ImageRef, // the reference with the digest, as in kubelet
		ContainerID:        inst.ID.String(),
		RestartCount:       inst.RestartCount,
		User:               inst.User.DeepCopy(),
		AllocatedResources: c.Resources.Requests.DeepCopy(),
	}
	sameInstance := prev != nil && prev.ContainerID == s.ContainerID
	if prev != nil {
		s.RestartCount = max(inst.RestartCount, prev.RestartCount)
		switch last := prev.LastTerminationState.Terminated; {
		case !sameInstance && prev.State.Terminated != nil:
			s.LastTerminationState = v1.ContainerState{Terminated: prev.State.Terminated.DeepCopy()}
		case last != nil && last.ContainerID == s.ContainerID:
			// It waited to be started again. Now the end of the instance is its state.
		default:
			s.LastTerminationState = *prev.LastTerminationState.DeepCopy()
		}
	}

	switch inst.State {
	case runtime.ContainerRunning:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: apiTime(inst.StartedAt)}
		if prev != nil && !sameInstance && prev.ContainerID != "" && inst.RestartCount <= prev.RestartCount {
			// The runtime has removed the earlier instances; this one is a restart.
			s.RestartCount = prev.RestartCount + 1
		}
	case runtime.ContainerExited:
		s.State = exited(inst)
	case runtime.ContainerUnknown:
		switch {
		case sameInstance && prev.State.Terminated != nil:
			s.State = *prev.State.DeepCopy()
		case prev != nil && prev.State.Running != nil:
			// It ran, and its end was not observed. Waiting would mean that it never ran.
			s.State = lost(messageLost)
		default:
			s.State = waiting(reasonContainerCreating)
		}
	default:
		s.State = waiting(reasonContainerCreating)
	}

	s.Resources = containerResources(c, inst, prev, sameInstance, resizeDue)
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil && inst.StopSignal != nil {
		// Reported only if the spec has the field: an API server without the feature has
		// neither.
		signal := *inst.StopSignal
		s.StopSignal = &signal
	}
	return s
}

// inferredDone is the status of an init container that must have succeeded.
func inferredDone(c *v1.Container, prev *v1.ContainerStatus) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image}
	if prev != nil {
		s = *prev.DeepCopy()
	}
	s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason:  reasonCompleted,
		Message: messageInferred,
	}}
	return s
}

// absent is the status of a container of which the runtime has no instance.
func (g *generation) absent(c *v1.Container, prev *v1.ContainerStatus) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, State: waiting(reasonContainerCreating)}
	if len(g.Pod.Spec.InitContainers) > 0 {
		s.State = waiting(reasonPodInitializing)
	}
	if prev == nil {
		return s
	}
	s.RestartCount = prev.RestartCount
	s.LastTerminationState = *prev.LastTerminationState.DeepCopy()
	if prev.State.Running != nil {
		// An instance ran and was removed. Without a last state the pod would seem not to
		// have started yet.
		s.LastTerminationState = lost(messageVanished)
		if !g.stopping() {
			s.RestartCount++
		}
	}
	return s
}

// removed is the status of a container whose instances were removed to restart all containers. prev is that before.
func removed(prev *v1.ContainerStatus) v1.ContainerStatus {
	s := *prev.DeepCopy()
	if s.State.Waiting != nil { // it has the state already, or has not run
		return s
	}
	s.ContainerID = ""
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonRestartingAll,
		Message: messageRemoved}}
	s.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: reasonRestartingAll, Message: messageRemoved, ExitCode: exitCodeLost,
	}}
	s.RestartCount++
	return s
}

// toBeStarted reports whether the next sync starts the container.
func (g *generation) toBeStarted(c *v1.Container, kind podspec.ContainerKind, s *v1.ContainerStatus) bool {
	switch {
	case g.stopping() || s.State.Running != nil:
		return false
	case s.State.Terminated != nil:
		return podspec.ShouldRestart(g.Pod, c, kind, s.State.Terminated.ExitCode)
	default:
		return true
	}
}

// probed sets started and ready. Ephemeral containers have neither.
func (g *generation) probed(c *v1.Container, kind podspec.ContainerKind, s *v1.ContainerStatus) {
	if kind == podspec.EphemeralContainer {
		return
	}
	// No probe has a result for the zero ID of a container that was not created.
	id, _ := runtime.ParseContainerID(s.ContainerID)
	started := s.State.Running != nil &&
		(!runtime.HasProbe(g.Probes, g.Pod, c, runtime.StartupProbe) || g.Probes.Started(id))
	s.Started = &started
	if kind == podspec.InitContainer && !podspec.IsSidecar(c) {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		return
	}
	s.Ready = started && (!runtime.HasProbe(g.Probes, g.Pod, c, runtime.ReadinessProbe) || g.Probes.Ready(id))
}

// volumeMounts returns the statuses of the container's volume mounts.
func volumeMounts(c *v1.Container, inst *runtime.ContainerStatus) []v1.VolumeMountStatus {
	var out []v1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if recursiveReadOnly(m, inst) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

func recursiveReadOnly(m *v1.VolumeMount, inst *runtime.ContainerStatus) bool {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false
	}
	if inst == nil {
		// Before the container is created only mode Enabled is certain: without it the
		// container does not start.
		return *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
	}
	for i := range inst.Mounts {
		if inst.Mounts[i].ContainerPath == m.MountPath {
			return inst.Mounts[i].RecursiveReadOnly
		}
	}
	return false
}

// containerResources are the resources of the spec. While the container runs, the
// values that the runtime reports replace them. A value that the runtime does not
// report is taken from the previous status of the same instance; a request of memory, which most
// cgroups do not have, only while a resize is due. If both spec and runtime
// are below the smallest value that cgroups can express, it is that of the spec.
func containerResources(c *v1.Container, inst *runtime.ContainerStatus, prev *v1.ContainerStatus,
	sameInstance, resizeDue bool) *v1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	if inst.State != runtime.ContainerRunning {
		return out
	}
	var actual, before v1.ResourceRequirements
	if inst.Resources != nil {
		actual = *inst.Resources
	}
	if sameInstance && prev.State.Running != nil && prev.Resources != nil {
		before = *prev.Resources
	}
	if inst.Resources != nil && !resizeDue {
		before.Requests = maps.Clone(before.Requests)
		delete(before.Requests, v1.ResourceMemory)
	}
	overlay(out.Requests, actual.Requests, before.Requests, podspec.MinCPURequestMilli)
	overlay(out.Limits, actual.Limits, before.Limits, podspec.MinCPULimitMilli)
	return out
}

// overlay replaces CPU and memory in into. It does nothing if into is nil, which
// means that the spec has none.
func overlay(into, actual, before v1.ResourceList, minCPUMilli int64) {
	if into == nil {
		return
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, ok := actual[name]
		switch {
		case !ok:
			if q, ok = before[name]; !ok {
				continue
			}
		case name == v1.ResourceCPU && q.MilliValue() <= minCPUMilli && into.Cpu().MilliValue() <= minCPUMilli:
			continue
		}
		into[name] = q.DeepCopy()
	}
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func lost(message string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: reasonStatusUnknown, Message: message, ExitCode: exitCodeLost,
	}}
}

func exited(inst *runtime.ContainerStatus) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode:    inst.ExitCode,
		Reason:      inst.Reason,
		Message:     inst.Message,
		StartedAt:   apiTime(inst.StartedAt),
		FinishedAt:  apiTime(inst.FinishedAt),
		ContainerID: inst.ID.String(),
	}}
}

func findStatus(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

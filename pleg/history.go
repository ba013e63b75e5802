package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// recordEvents records the events of a pod. The status has the details; it is nil if the pod
// is gone. Removals are not recorded: they change nothing of what runs. What has died comes
// before what runs, since an instance starts after the one before it. f may be nil.
func recordEvents(f runtime.RecordFunc, pod runtime.PodRef, events []Event, status *runtime.PodStatus,
	source runtime.RecordSource) {
	if f == nil || len(events) == 0 {
		return
	}
	var nothing runtime.PodStatus
	if status == nil {
		status = &nothing
	}
	sandboxes := index(status.Sandboxes, func(s *runtime.SandboxStatus) string { return s.ID })
	containers := index(status.Containers, func(c *runtime.ContainerStatus) runtime.ContainerID { return c.ID })
	for _, died := range [...]bool{true, false} {
		for i := range events {
			if t := events[i].Type; died != (t == ContainerDied || t == SandboxDied) {
				continue
			}
			if r, ok := recordOf(&events[i], sandboxes, containers); ok {
				r.Pod, r.Stage, r.Source = pod, runtime.StageSeen, source
				f(r)
			}
		}
	}
}

// recordOf returns the record of an event, if it has one. The details are those of the sandboxes and
// containers.
func recordOf(e *Event, sandboxes map[string]*runtime.SandboxStatus,
	containers map[runtime.ContainerID]*runtime.ContainerStatus) (r runtime.Record, ok bool) {
	switch e.Type {
	case SandboxStarted:
		r.Kind = runtime.KindSandboxReady
	case SandboxDied:
		r.Kind = runtime.KindSandboxDied
	case ContainerStarted:
		r.Kind = runtime.KindContainerRunning
	case ContainerDied:
		r.Kind = runtime.KindContainerExited
	case ContainerChanged:
		r.Kind = runtime.KindContainerUnknown
	default:
		return r, false
	}
	if e.SandboxID != "" {
		if s := sandboxes[e.SandboxID]; s != nil {
			r.Attempt = s.Attempt
		}
		return r, true
	}
	r.Container = e.Name
	c := containers[e.ContainerID]
	if c == nil {
		if r.Kind == runtime.KindContainerExited {
			r.Reason = runtime.ReasonGone
		}
		return r, true
	}
	if r.Kind == runtime.KindContainerUnknown && c.State != runtime.ContainerUnknown {
		return r, false // it is created, and another state follows
	}
	r.Attempt = uint32(max(0, c.RestartCount))
	if r.Kind == runtime.KindContainerExited {
		r.ExitCode, r.Reason, r.At = c.ExitCode, c.Reason, c.FinishedAt
		if !c.StartedAt.IsZero() {
			r.Duration = max(0, c.FinishedAt.Sub(c.StartedAt))
		}
	}
	return r, true
}

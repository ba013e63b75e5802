package pleg

import "github.com/kubeletkit/kubeletkit/runtime"

// recordEvents records the events of a pod. The status has the details; it is nil if the pod
// is gone. Removals are not recorded: they change nothing of what runs. What has died comes
// before what runs, since an instance starts after the one before it. f may be nil.
func recordEvents(f runtime.RecordFunc, pod runtime.PodRef, events []Event, status *runtime.PodStatus, source runtime.RecordSource) {
	if f == nil || len(events) == 0 {
		return
	}
	var nothing runtime.PodStatus
	if status == nil {
		status = &nothing
	}
	sandboxes := finderOf(status.Sandboxes, func(s *runtime.SandboxStatus) string { return s.ID })
	containers := finderOf(status.Containers, func(c *runtime.ContainerStatus) runtime.ContainerID { return c.ID })
	for _, died := range [...]bool{true, false} {
		for i := range events {
			if t := events[i].Type; died != (t == ContainerDied || t == SandboxDied) {
				continue
			}
			if r, ok := recordOf(&events[i], &sandboxes, &containers); ok {
				r.Pod, r.Stage, r.Source = pod, runtime.StageSeen, source
				f(r)
			}
		}
	}
}

// recordOf returns the record of an event, if it has one. The details are those of the sandboxes and
// containers.
func recordOf(e *Event, sandboxes *finder[runtime.SandboxStatus, string], containers *finder[runtime.ContainerStatus, runtime.ContainerID]) (r runtime.Record, ok bool) {
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
		if at := sandboxes.find(e.SandboxID); at >= 0 {
			r.Attempt = sandboxes.list[at].Attempt
		}
		return r, true
	}
	r.Container = e.Name
	at := containers.find(e.ContainerID)
	if at < 0 {
		if r.Kind == runtime.KindContainerExited {
			r.Reason = runtime.ReasonGone
		}
		return r, true
	}
	c := &containers.list[at]
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

package plan

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The reasons to start a container or to create a sandbox, beside those to kill a
// container.
const (
	// ReasonNew: there is none yet.
	ReasonNew = "New"
	// ReasonExited: the newest instance has exited. The message of the record has its exit
	// code.
	ReasonExited = "Exited"
	// ReasonNotStarted: the newest instance was created and could not be started.
	ReasonNotStarted = "NotStarted"
	// ReasonSandboxChanged: the pod gets a new sandbox.
	ReasonSandboxChanged = "SandboxChanged"
	// ReasonSandboxDied: the newest sandbox is not ready.
	ReasonSandboxDied = "SandboxDied"
	// ReasonNamespaces: the newest sandbox has other namespaces than the spec requests, or
	// no address.
	ReasonNamespaces = "NamespacesChanged"
	// ReasonSeveralSandboxes: more than one sandbox is ready.
	ReasonSeveralSandboxes = "SeveralSandboxes"
	// ReasonFinished: no container of the pod is to run any more.
	ReasonFinished = "Finished"
)

// Records returns the decisions of a [Compute] as records, in the order in which they are
// carried out. in is its input, and a its result. A back-off that the call before decided
// is not among them.
func Records(in Input, a Actions) []runtime.Record {
	if !a.KillPod && !a.CreateSandbox && len(a.Kill) == 0 && len(a.Resize) == 0 && len(a.Start) == 0 &&
		len(a.Waiting) == 0 {
		return nil // the most frequent case
	}
	if in.Status == nil {
		in.Status = &runtime.PodStatus{}
	}
	var out []runtime.Record
	decide := func(r runtime.Record) {
		r.Pod, r.Stage = runtime.RefOf(in.Pod), runtime.StageDecided
		out = append(out, r)
	}
	if a.KillPod && !a.CreateSandbox && in.Status.Running() {
		decide(runtime.Record{Kind: runtime.KindStopPod, Reason: ReasonFinished})
	}
	for i := range a.Kill {
		k := &a.Kill[i]
		decide(runtime.Record{
			Kind: runtime.KindStopContainer, Container: k.Container.Name,
			Attempt: uint32(max(0, k.Container.RestartCount)),
			Reason:  k.Reason, Message: k.Message, Duration: podspec.Seconds(k.GracePeriod),
		})
	}
	for i := range a.Resize {
		r := &a.Resize[i]
		decide(runtime.Record{
			Kind: runtime.KindResizeContainer, Container: r.Container.Name,
			Attempt: uint32(max(0, r.Instance.RestartCount)),
			Message: joinNames(r.Resources),
		})
	}
	if a.CreateSandbox {
		decide(runtime.Record{Kind: runtime.KindCreateSandbox, Attempt: a.Attempt, Reason: sandboxReason(in.Status)})
	}
	for i := range a.Start {
		s := &a.Start[i]
		reason, message := startReason(in, a, s)
		decide(runtime.Record{
			Kind: runtime.KindStartContainer, Container: s.Container.Name, Attempt: uint32(max(0, s.RestartCount)),
			Reason: reason, Message: message,
		})
	}
	for kind, c := range podspec.Containers(&in.Pod.Spec) {
		if _, waits := a.Waiting[c.Name]; !waits || in.Crashes[c.Name] == a.Crashes[c.Name] {
			continue
		}
		_, message := exitOf(kind, in.Status.Newest(c.Name))
		decide(runtime.Record{
			Kind: runtime.KindBackOff, Container: c.Name, Reason: waitingReason, Message: message,
			Duration: a.Crashes[c.Name].Delay,
		})
	}
	return out
}

func joinNames(names []v1.ResourceName) string {
	var out []string
	for _, name := range names {
		out = append(out, string(name))
	}
	return strings.Join(out, ", ")
}

// sandboxReason returns why the pod needs another sandbox.
func sandboxReason(status *runtime.PodStatus) string {
	ready := 0
	for i := range status.Sandboxes {
		if status.Sandboxes[i].State == runtime.SandboxReady {
			ready++
		}
	}
	switch {
	case len(status.Sandboxes) == 0:
		return ReasonNew
	case status.Sandboxes[0].State != runtime.SandboxReady:
		return ReasonSandboxDied
	case ready > 1:
		return ReasonSeveralSandboxes
	default:
		return ReasonNamespaces
	}
}

// startReason returns why the container is started, and details.
func startReason(in Input, a Actions, s *Start) (reason, message string) {
	for i := range a.Kill {
		if a.Kill[i].Container.Name == s.Container.Name {
			return a.Kill[i].Reason, ""
		}
	}
	n := in.Status.Newest(s.Container.Name)
	switch {
	case n == nil:
		return ReasonNew, ""
	case n.State == runtime.ContainerExited:
		return exitOf(s.Kind, n)
	case n.State == runtime.ContainerCreated:
		return ReasonNotStarted, ""
	default:
		return ReasonSandboxChanged, ""
	}
}

// exitOf describes the end of the newest instance.
func exitOf(kind podspec.ContainerKind, n *runtime.ContainerStatus) (reason, message string) {
	if n == nil || n.State != runtime.ContainerExited {
		return ReasonNew, ""
	}
	message = fmt.Sprintf("code %d", exitCode(kind, n))
	if n.Reason != "" && n.Reason != "Completed" && n.Reason != "Error" {
		message += ", " + n.Reason
	}
	return ReasonExited, message
}

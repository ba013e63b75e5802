package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func ptr[T any](v T) *T { return &v }

// podOf makes a pod of containers given as "name", "init:name" or "side:name".
func podOf(policy v1.RestartPolicy, containers ...string) *v1.Pod {
	pod := testpod.New("web", testpod.UID("u1"), testpod.Restart(policy))
	pod.Generation = 1
	for _, c := range containers {
		kind, name, ok := strings.Cut(c, ":")
		switch {
		case !ok:
			testpod.Container(v1.Container{Name: c, Image: c + ":1"})(pod)
		case kind == "side":
			testpod.Sidecar(v1.Container{Name: name, Image: name + ":1"})(pod)
		default:
			testpod.Init(v1.Container{Name: name, Image: name + ":1"})(pod)
		}
	}
	return pod
}

// observe makes what the runtime reports, the newest instance first, of instances given as
// "name/id state", the state being created, unknown, running@<start> or
// exit<code>@<start>-<end>, in seconds after noon. With ip "" the sandbox is
// not ready.
func observe(ip string, instances ...string) *runtime.PodStatus {
	s := &runtime.PodStatus{}
	sandbox := runtime.SandboxStatus{Sandbox: runtime.Sandbox{ID: "box", State: runtime.SandboxNotReady,
		CreatedAt: at(-1)}}
	if ip != "" {
		sandbox.State, sandbox.IPs, s.IPs = runtime.SandboxReady, []string{ip}, []string{ip}
	}
	s.Sandboxes = []runtime.SandboxStatus{sandbox}
	for i, text := range instances {
		name, rest, _ := strings.Cut(text, "/")
		id, state, _ := strings.Cut(rest, " ")
		c := runtime.ContainerStatus{Container: runtime.Container{
			ID: runtime.ContainerID{Type: "fake", ID: id}, Name: name, SandboxID: "box", CreatedAt: at(0),
		}, Image: name + ":1", ImageRef: name + "@sha256:1"}
		for _, older := range instances[i+1:] {
			if strings.HasPrefix(older, name+"/") {
				c.RestartCount++
			}
		}
		var start, end float64
		switch {
		case state == "created":
			c.State = runtime.ContainerCreated
		case state == "unknown":
			c.State = runtime.ContainerUnknown
		case strings.HasPrefix(state, "running"):
			c.State = runtime.ContainerRunning
			must(fmt.Sscanf(state, "running@%g", &start))
			c.StartedAt = at(start)
		default:
			c.State = runtime.ContainerExited
			must(fmt.Sscanf(state, "exit%d@%g-%g", &c.ExitCode, &start, &end))
			c.StartedAt, c.FinishedAt, c.Reason = at(start), at(end), "Completed"
			if c.ExitCode != 0 {
				c.Reason = "Error"
			}
		}
		s.Containers = append(s.Containers, c)
	}
	return s
}

func must(_ int, err error) {
	if err != nil {
		panic(err)
	}
}

// probes are verdicts by container ID.
type probes struct{ started, ready string }

func (probes) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}
func (p probes) Started(
	id runtime.ContainerID) bool {
	return strings.Contains(p.started, id.ID)
}
func (p probes) Ready(
	id runtime.ContainerID) bool {
	return strings.Contains(p.ready, id.ID)
}
func (p probes) Unhealthy(runtime.ContainerID) (kind runtime.ProbeKind, yes bool) { return "", false }

// render writes a status in few lines: the phase, the conditions with the second
// of their transition, and the containers.
func render(s v1.PodStatus) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s", s.Phase)
	if s.Reason != "" || s.Message != "" {
		fmt.Fprintf(&out, " (%s: %s)", s.Reason, s.Message)
	}
	if s.PodIP != "" {
		fmt.Fprintf(&out, " %s", s.PodIP)
	}
	fmt.Fprintf(&out, " since %v\n", sec(s.StartTime.Time))
	for _, c := range s.Conditions {
		fmt.Fprintf(&out, "%s=%s@%v", c.Type, c.Status, sec(c.LastTransitionTime.Time))
		if c.Reason != "" || c.Message != "" {
			fmt.Fprintf(&out, " (%s: %s)", c.Reason, c.Message)
		}
		out.WriteString("\n")
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for _, c := range list {
			fmt.Fprintf(&out, "%s[%s]: %s", c.Name, strings.TrimPrefix(c.ContainerID, "fake://"), state(c.State))
			if l := state(c.LastTerminationState); l != "" {
				fmt.Fprintf(&out, ", was %s", l)
			}
			fmt.Fprintf(&out, ", restarts %d", c.RestartCount)
			if c.Started != nil && *c.Started {
				out.WriteString(", started")
			}
			if c.Ready {
				out.WriteString(", ready")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

func state(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return fmt.Sprintf("running@%v", sec(s.Running.StartedAt.Time))
	case s.Terminated != nil:
		return fmt.Sprintf("exit%d@%v-%v %s", s.Terminated.ExitCode, sec(s.Terminated.StartedAt.Time),
			sec(s.Terminated.FinishedAt.Time), s.Terminated.Reason)
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	default:
		return ""
	}
}

// sec is a time in seconds after noon; "-" for none.
func sec(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprint(t.Sub(noon).Seconds())
}

func condition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func containerStatus(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// whole is a time as the API has it, in whole seconds.
func whole(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

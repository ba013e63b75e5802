package gc

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Policy says what dead containers may stay.
type Policy struct {
	// MinAge is how old a dead container of a pod that is not gone must be to be
	// removed, counted from its creation. Default 0: any age, as kubelet.
	MinAge time.Duration
	// MaxPerContainer is how many dead instances of a container stay while its pod
	// is not gone. Default 1; a negative number keeps none.
	MaxPerContainer int
}

// Removal is what is to be removed, containers before the sandboxes they are in.
type Removal struct {
	Containers []ContainerRemoval
	Sandboxes  []SandboxRemoval
}

// ContainerRemoval names a dead container.
type ContainerRemoval struct {
	Pod runtime.PodRef
	runtime.Container
}

// SandboxRemoval names a dead sandbox.
type SandboxRemoval struct {
	Pod runtime.PodRef
	runtime.Sandbox
}

// Plan returns what of the listed pods is to be removed. gone tells which pods
// are not wanted any more and have no worker.
func Plan(pods []*runtime.Pod, gone func(types.UID) bool, policy Policy, now time.Time) Removal {
	var out Removal
	for _, pod := range pods {
		planPod(&out, pod, gone(pod.UID), policy, now)
	}
	return out
}

func planPod(out *Removal, pod *runtime.Pod, gone bool, policy Policy, now time.Time) {
	if gone && pod.Running() {
		return // its end is not our business
	}
	keep := policy.MaxPerContainer
	switch {
	case gone || keep < 0:
		keep = 0
	case keep == 0:
		keep = 1
	}
	seen := map[string]bool{}      // containers of which a newer instance was seen
	dead := map[string]int{}       // dead instances seen, by container name; the newest come first
	remaining := map[string]bool{} // sandboxes that still hold a container
	for _, c := range pod.Containers {
		// What was created and never started has nothing to tell. Nobody will start it
		// once there is a newer instance: the agent ended between the two steps.
		stillborn := c.State == runtime.ContainerCreated && (gone || seen[c.Name])
		seen[c.Name] = true
		if c.State == runtime.ContainerExited {
			dead[c.Name]++
		}
		surplus := stillborn || c.State == runtime.ContainerExited && dead[c.Name] > keep
		if surplus && (gone || now.Sub(c.CreatedAt) >= policy.MinAge) {
			out.Containers = append(out.Containers, ContainerRemoval{Pod: pod.PodRef, Container: c})
			continue
		}
		remaining[c.SandboxID] = true
	}
	for i, s := range pod.Sandboxes {
		if s.State == runtime.SandboxReady || remaining[s.ID] || i == 0 && !gone {
			continue
		}
		out.Sandboxes = append(out.Sandboxes, SandboxRemoval{Pod: pod.PodRef, Sandbox: s})
	}
}

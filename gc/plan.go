package gc

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Policy has the limits of [Plan].
type Policy struct {
	// MinAge is the age, counted from its creation, at which a dead container of a pod
	// that is not gone may be removed. Default 0: any age, as in kubelet.
	MinAge time.Duration
	// MaxPerContainer is the number of dead instances that are kept of each container
	// of a pod that is not gone. Default 1; a negative number keeps none.
	MaxPerContainer int
	// MaxContainers is the number of dead containers that are kept on the whole node, of pods that are not gone and of
	// containers that have reached MinAge (kubelet: --maximum-dead-containers). If there are more, each container keeps
	// its share of the number, at least one instance, and then the oldest are removed. Default 0: no limit; a negative
	// number keeps none.
	MaxContainers int
	// KeepLogs is the time that the log directory of a pod stays after the pod is gone, so
	// that log shippers can read it to its end. Its containers are removed at once. Default
	// 0: the logs go with the containers.
	KeepLogs time.Duration
}

// PlanFunc decides what is removed. It is a pure function: it does no I/O, does not
// change its input, and returns only what is in it. It is never called twice at once.
//
// The collector removes what the plan has, also if Policy would keep it. A container
// that runs or a sandbox that is ready is not removed; it is an error of the
// collection.
type PlanFunc func(Input) Removal

// Input is the state that a plan is made from.
type Input struct {
	// Pods are the pods in the runtime, their containers and sandboxes the newest first.
	// They must not be changed.
	Pods []Pod
	// LogDirs are the log directories of pods, empty if Options.LogsDir is.
	LogDirs []LogDir
	// Policy is that of the Options.
	Policy Policy
	// Now is the time of the collection.
	Now time.Time
}

// Pod is a pod in the runtime.
type Pod struct {
	*runtime.Pod
	// Gone means that the pod is not desired and has no worker.
	Gone bool
}

// LogDir is the log directory of a pod.
type LogDir struct {
	Path string
	UID  types.UID
	// Gone means that the pod is not desired and has no worker.
	Gone bool
	// GoneSince is when the collector first found the pod gone. It is zero if it is not.
	GoneSince time.Time
}

// Removal is a plan. Containers are removed first, then sandboxes, then log
// directories. A container whose sandbox is in the plan, and whose log directory is too or
// is kept by [Policy].KeepLogs, is removed by [runtime.Remover.RemoveSandbox], with its
// sandbox.
type Removal struct {
	Containers []ContainerRemoval
	Sandboxes  []SandboxRemoval
	// LogDirs whose pod is not gone when their turn comes are left alone.
	LogDirs []LogDir
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

// Plan is the default [PlanFunc]. See the package documentation for what it keeps.
func Plan(in Input) Removal {
	var out Removal
	over := overNode(in)
	running := map[types.UID]bool{}
	for _, pod := range in.Pods {
		if pod.Running() {
			running[pod.UID] = true
		}
		planPod(&out, pod, in.Policy, over, in.Now)
	}
	for _, dir := range in.LogDirs {
		if dir.Gone && !running[dir.UID] && in.Now.Sub(dir.GoneSince) >= in.Policy.KeepLogs {
			out.LogDirs = append(out.LogDirs, dir)
		}
	}
	return out
}

// perContainer returns the number of dead instances that are kept of each container of a pod that is not gone.
func (p Policy) perContainer() int {
	if p.MaxPerContainer == 0 {
		return 1
	}
	return max(0, p.MaxPerContainer)
}

// overNode returns the containers that are removed for the limit of the whole node alone.
func overNode(in Input) map[runtime.ContainerID]bool {
	limit := in.Policy.MaxContainers
	if limit == 0 {
		return nil
	}
	limit = max(0, limit)
	type kept struct {
		runtime.Container
		nth int // of the dead instances of its container, the newest first
	}
	var all []kept
	units := 0 // containers of pods with such an instance
	for _, pod := range in.Pods {
		if pod.Gone {
			continue
		}
		dead := map[string]int{}
		for _, c := range pod.Containers {
			if c.State != runtime.ContainerExited || !oldEnough(c.CreatedAt, in.Now, in.Policy.MinAge) {
				continue
			}
			if dead[c.Name]++; dead[c.Name] > in.Policy.perContainer() {
				continue
			}
			if dead[c.Name] == 1 {
				units++
			}
			all = append(all, kept{c, dead[c.Name]})
		}
	}
	if len(all) <= limit {
		return nil
	}
	share, over := max(1, limit/units), map[runtime.ContainerID]bool{}
	all = slices.DeleteFunc(all, func(k kept) bool {
		if k.nth > share {
			over[k.ID] = true
		}
		return k.nth > share
	})
	slices.SortStableFunc(all, func(a, b kept) int { return b.CreatedAt.Compare(a.CreatedAt) })
	for _, k := range all[min(limit, len(all)):] {
		over[k.ID] = true
	}
	return over
}

func planPod(out *Removal, pod Pod, policy Policy, over map[runtime.ContainerID]bool, now time.Time) {
	if pod.Gone && pod.Running() {
		return // it has to be terminated first, which is not the collector's task
	}
	keep := policy.perContainer()
	if pod.Gone {
		keep = 0
	}
	newer := map[string]bool{}    // container names with an instance before this one in the list
	dead := map[string]int{}      // dead instances so far, by container name
	occupied := map[string]bool{} // sandboxes that keep a container
	for _, c := range pod.Containers {
		// A container that was created but not started has no result. It will not be
		// started if there is a newer instance: the agent ended between the two steps.
		stillborn := c.State == runtime.ContainerCreated && (pod.Gone || newer[c.Name])
		newer[c.Name] = true
		if c.State == runtime.ContainerExited {
			dead[c.Name]++
		}
		surplus := stillborn || c.State == runtime.ContainerExited && (dead[c.Name] > keep || over[c.ID])
		if surplus && (pod.Gone || oldEnough(c.CreatedAt, now, policy.MinAge)) {
			out.Containers = append(out.Containers, ContainerRemoval{Pod: pod.PodRef, Container: c})
			continue
		}
		occupied[c.SandboxID] = true
	}
	for i, s := range pod.Sandboxes {
		if s.State == runtime.SandboxReady || occupied[s.ID] || i == 0 && !pod.Gone {
			continue
		}
		out.Sandboxes = append(out.Sandboxes, SandboxRemoval{Pod: pod.PodRef, Sandbox: s})
	}
}

// oldEnough reports whether a container has reached the age. One that was made in the future
// has: the clock was set back, and it would stay until that time.
func oldEnough(created, now time.Time, minAge time.Duration) bool {
	age := now.Sub(created)
	return age < 0 || age >= minAge
}

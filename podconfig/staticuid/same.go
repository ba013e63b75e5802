package staticuid

import (
	"context"
	"errors"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// same reports whether the pod in the runtime is that of the manifest.
func (u *UIDs) same(ctx context.Context, pod podconfig.StaticPod, ref runtime.PodRef) bool {
	for failures := 1; ; failures++ {
		status, err := u.inspect(ctx, ref)
		switch {
		case err == nil:
			why := difference(pod, status)
			if why != "" {
				u.log.Info("Static pod that another agent has started is replaced", "pod", ref, "why", why)
			}
			return why == ""
		case failures == inspections || !flow.Sleep(ctx, retries.After(failures)):
			u.log.Error(err, "Static pod that another agent has started cannot be inspected; it is replaced",
				"pod", ref)
			return false
		}
	}
}

func (u *UIDs) inspect(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var status *runtime.PodStatus
	err := runtime.Recover(func() (err error) {
		status, err = u.runtime.InspectPod(ctx, ref)
		return err
	})
	if err == nil && status == nil {
		err = errors.New("the runtime returned neither a status nor an error")
	}
	return status, err
}

// difference returns why the pod in the runtime is not that of the manifest, or "".
func difference(pod podconfig.StaticPod, status *runtime.PodStatus) string {
	if len(status.Sandboxes) == 0 {
		return "it has no sandbox"
	}
	sandbox := &status.Sandboxes[0]
	switch source := sandbox.Annotations[podspec.AnnotationConfigSource]; {
	// The source of a manifest may have another name than kubelet's.
	case source == "" || source != pod.Source && source != pod.Pod.Annotations[podspec.AnnotationConfigSource]:
		return "it is from another source"
	case !pod.Modified.IsZero() && pod.Modified.After(seenAt(sandbox)):
		return "the manifest was written after the pod was started"
	case !contains(sandbox.Labels, pod.Pod.Labels):
		return "the labels differ"
	case !contains(sandbox.Annotations, pod.Pod.Annotations):
		return "the annotations differ"
	}
	return differentContainer(pod, status)
}

// seenAt returns the time at which the agent that has made the sandbox received the manifest.
func seenAt(sandbox *runtime.SandboxStatus) time.Time {
	if seen, err := time.Parse(time.RFC3339Nano, sandbox.Annotations[podspec.AnnotationConfigSeen]); err == nil {
		return seen
	}
	return sandbox.CreatedAt
}

// contains reports whether all has what some has, apart from the annotations that agents set.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		switch key {
		case podspec.AnnotationConfigSource, podspec.AnnotationConfigHash, podspec.AnnotationConfigSeen:
			continue
		}
		if has, ok := all[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// differentContainer compares the containers that run, or the newest instances if none runs.
func differentContainer(pod podconfig.StaticPod, status *runtime.PodStatus) string {
	running, compared := status.ContainersRunning(), false
	for i := range status.Containers {
		c := &status.Containers[i]
		runs := c.State == runtime.ContainerRunning || c.State == runtime.ContainerUnknown
		if running && !runs || !running && c != status.Newest(c.Name) {
			continue
		}
		compared = true
		if spec, _ := podspec.FindContainer(&pod.Pod.Spec, c.Name); spec == nil ||
			podspec.ContainerHash(spec) != c.Hash {
			return "container " + c.Name + " is not that of the manifest"
		}
	}
	if !compared {
		return "it has no container"
	}
	return ""
}

package harness

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Forever is a shell script that runs until it is asked to end, and then ends
// at once.
const Forever = "trap 'exit 0' TERM; sleep 2147483647 & wait"

// Stubborn is a shell script that ignores SIGTERM.
const Stubborn = "trap '' TERM; while :; do sleep 1; done"

// Option changes a pod that is being made.
type Option func(*v1.Pod)

// MakePod makes a pod of the name, with a grace period of 5 s.
func MakePod(name string, options ...Option) *v1.Pod {
	grace := int64(5)
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// Sh is a container of image busybox:1 that runs a shell script.
func Sh(name, script string) v1.Container {
	return v1.Container{
		Name: name, Image: registryAddr + "/busybox:1", ImagePullPolicy: v1.PullIfNotPresent,
		Command: []string{"/bin/sh", "-c", script},
	}
}

// Main adds main containers.
func Main(containers ...v1.Container) Option {
	return func(pod *v1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, containers...) }
}

// Init adds init containers.
func Init(containers ...v1.Container) Option {
	return func(pod *v1.Pod) { pod.Spec.InitContainers = append(pod.Spec.InitContainers, containers...) }
}

// Sidecar adds an init container that is kept running.
func Sidecar(container v1.Container) Option {
	always := v1.ContainerRestartPolicyAlways
	container.RestartPolicy = &always
	return Init(container)
}

// Policy sets the restart policy.
func Policy(policy v1.RestartPolicy) Option {
	return func(pod *v1.Pod) { pod.Spec.RestartPolicy = policy }
}

// Grace sets the termination grace period in seconds.
func Grace(seconds int64) Option {
	return func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
}

// Volume adds a volume.
func Volume(name string, source v1.VolumeSource) Option {
	return func(pod *v1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	}
}

// Mounted adds a volume and mounts it at "/<name>" in every container that was added before.
func Mounted(name string, source v1.VolumeSource) Option {
	return func(pod *v1.Pod) {
		Volume(name, source)(pod)
		mount := v1.VolumeMount{Name: name, MountPath: "/" + name}
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
			}
		}
	}
}

// Shared adds the host directory dir and mounts it at /shared in every
// container that was added before.
func Shared(dir string) Option {
	return func(pod *v1.Pod) {
		Volume("shared", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}})(pod)
		mount := v1.VolumeMount{Name: "shared", MountPath: "/shared"}
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
			}
		}
	}
}

// Condition is what a test waits for: nil when it is fulfilled.
type Condition func(*v1.Pod) error

// Phase waits for a phase.
func Phase(phase v1.PodPhase) Condition {
	return func(pod *v1.Pod) error {
		if pod.Status.Phase != phase {
			return fmt.Errorf("phase is %q, not %s", pod.Status.Phase, phase)
		}
		return nil
	}
}

// Running waits until the pod and all its main containers run.
func Running(pod *v1.Pod) error {
	if err := Phase(v1.PodRunning)(pod); err != nil {
		return err
	}
	if got, want := len(pod.Status.ContainerStatuses), len(pod.Spec.Containers); got != want {
		return fmt.Errorf("%d container statuses for %d containers", got, want)
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil {
			return fmt.Errorf("container %s does not run: %+v", s.Name, s.State)
		}
	}
	return nil
}

// Ready waits for a readiness.
func Ready(want bool) Condition {
	return func(pod *v1.Pod) error {
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodReady && (c.Status == v1.ConditionTrue) == want {
				return nil
			}
		}
		return fmt.Errorf("condition Ready is not %v: %+v", want, pod.Status.Conditions)
	}
}

// Status returns the status of a container of the pod, of whatever kind.
func Status(pod *v1.Pod, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return &v1.ContainerStatus{}
}

// Restarts waits until the container has been restarted n times, or more.
func Restarts(container string, n int32) Condition {
	return func(pod *v1.Pod) error {
		if got := Status(pod, container).RestartCount; got < n {
			return fmt.Errorf("container %s was restarted %d times, not %d", container, got, n)
		}
		return nil
	}
}

// Waiting waits until the container waits for the reason.
func Waiting(container, reason string) Condition {
	return func(pod *v1.Pod) error {
		s := Status(pod, container).State
		if s.Waiting == nil || s.Waiting.Reason != reason {
			return fmt.Errorf("container %s does not wait for %s: %+v", container, reason, s)
		}
		return nil
	}
}

// Terminated waits until the container has ended with the exit code.
func Terminated(container string, code int32) Condition {
	return func(pod *v1.Pod) error {
		s := Status(pod, container).State
		if s.Terminated == nil || s.Terminated.ExitCode != code {
			return fmt.Errorf("container %s has not ended with %d: %+v", container, code, s)
		}
		return nil
	}
}

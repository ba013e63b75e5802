package cri

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Call is the measurement of a CRI call that has returned: all but GetContainerEvents, which lasts as long as its
// stream. kubelet_runtime_operations_total, kubelet_runtime_operations_duration_seconds and
// kubelet_runtime_operations_errors_total are the number of calls, their Took, and the number of those with an error,
// by Operation.
type Call struct {
	// Method is the name of the call in CRI, such as "RunPodSandbox".
	Method string
	Took   time.Duration
	// Err is the error of the call. A call that was cancelled has an error, too.
	Err error
}

// Operation returns the value of kubelet's label operation_type, such as
// "run_podsandbox". A list counts as the same operation whether it was streamed or
// not. Of calls that [Runtime] does not make it returns "".
func (c Call) Operation() string {
	switch c.Method {
	case "RuntimeConfig":
		return "runtime_config"
	case "Version":
		return "version"
	case "Status":
		return "status"
	case "RunPodSandbox":
		return "run_podsandbox"
	case "StopPodSandbox":
		return "stop_podsandbox"
	case "RemovePodSandbox":
		return "remove_podsandbox"
	case "PodSandboxStatus":
		return "podsandbox_status"
	case "ListPodSandbox", "StreamPodSandboxes":
		return "list_podsandbox"
	case "CreateContainer":
		return "create_container"
	case "StartContainer":
		return "start_container"
	case "StopContainer":
		return "stop_container"
	case "RemoveContainer":
		return "remove_container"
	case "ContainerStatus":
		return "container_status"
	case "ListContainers", "StreamContainers":
		return "list_containers"
	case "ExecSync":
		return "exec_sync"
	case "ImageStatus":
		return "image_status"
	case "PullImage":
		return "pull_image"
	default:
		return ""
	}
}

// SandboxStart is the measurement of an attempt to start the sandbox of a pod. kubelet_started_pods_total and
// kubelet_started_pods_errors_total are the number of attempts and of those with an error.
// kubelet_run_podsandbox_duration_seconds and kubelet_run_podsandbox_errors_total are Took and the number of attempts
// with an error, by RuntimeHandler.
type SandboxStart struct {
	Pod runtime.PodRef
	// RuntimeHandler is that of the pod's runtime class, "" without one.
	RuntimeHandler string
	// Took is the duration of RunPodSandbox.
	Took time.Duration
	Err  error
}

// PodStart is the measurement of a sync that was to start the sandbox of a pod and the containers that come first.
// kubelet_started_user_namespaced_pods_total and kubelet_started_user_namespaced_pods_errors_total are the number of
// those with UserNamespace, and of those that also have an error: of the sandbox, or of a container.
type PodStart struct {
	Pod runtime.PodRef
	// UserNamespace means that the pod has a user namespace of its own (hostUsers: false).
	UserNamespace bool
	// Err joins what failed in the sync.
	Err error
}

// ContainerStart is the measurement of an attempt to start a container, which begins with its image.
// kubelet_started_containers_total is the number of attempts by Kind. kubelet_started_containers_errors_total is the
// number of those with a Reason, by Kind and Reason.
type ContainerStart struct {
	Pod       runtime.PodRef
	Container string
	Kind      podspec.ContainerKind
	// Reason is the waiting reason if the container does not run, such as
	// "ErrImagePull", "ImagePullBackOff" or "RunContainerError"; else "". An attempt
	// that was cancelled has a reason, too.
	Reason string
}

// PodResize is the measurement of the resize of a running pod: kubelet_pod_resize_duration_milliseconds.
type PodResize struct {
	Pod  runtime.PodRef
	Took time.Duration
	Err  error
}

// IsMeasurement implements [runtime.Measurement].
func (PodResize) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Call) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (SandboxStart) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (PodStart) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (ContainerStart) IsMeasurement() {}

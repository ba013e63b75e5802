package syncloop

import (
	"errors"
	"fmt"
	"iter"
	goruntime "runtime"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// undrained refuses all pods when the workers are drained, with kubelet's words for a node that shuts down.
type undrained struct {
	lifecycle.Admitter
	workers podworkers.Workers
}

// Admit implements [lifecycle.Admitter].
func (a undrained) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if a.workers.State(req.Pod.UID).Drained {
		return lifecycle.AdmitResponse{}, lifecycle.Refuse("NodeShutdown",
			"Pod was rejected as the node is shutting down.")
	}
	return a.Admitter.Admit(req)
}

// Limits is a [lifecycle.Admitter] with kubelet's checks. It refuses a pod for another operating
// system, a pod above the number of pods, a pod with a host port that an active pod uses,
// and a pod whose requests exceed the free resources. It does not check node selectors,
// affinity and taints, which are for a scheduler.
type Limits struct {
	// MaxPods is the largest number of active pods. 0: no limit; a negative number admits none.
	MaxPods int
	// Allocatable is the CPU, memory and ephemeral storage for the requests of all active
	// pods. A resource that is missing is not limited.
	Allocatable v1.ResourceList
}

var _ lifecycle.Admitter = Limits{}

// Name implements [lifecycle.Component].
func (Limits) Name() string { return "limits" }

// Admit implements [lifecycle.Admitter].
func (l Limits) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	return lifecycle.AdmitResponse{}, l.check(req)
}

func (l Limits) check(req lifecycle.AdmitRequest) error {
	pod, active := req.Pod, req.Active
	if os := pod.Spec.OS; os != nil && string(os.Name) != goruntime.GOOS {
		return lifecycle.Refuse("PodOSNotSupported", fmt.Sprintf("spec.os.name is %s, and the node runs %s",
			os.Name, goruntime.GOOS))
	}
	if s, short := podspec.PodShortage(int64(len(active)), int64(max(0, l.MaxPods))); short && l.MaxPods != 0 {
		return lifecycle.Refuse(s.Reason(), s.Message())
	}
	if port, other := portConflict(pod, active); other != nil {
		return lifecycle.Refuse("NodePorts", fmt.Sprintf("host port %s is used by pod %s/%s", port,
			other.Namespace, other.Name))
	}
	if shortages := podspec.Shortages(pod, active, podspec.Requests, l.capacity); len(shortages) > 0 {
		return lifecycle.Refuse(shortages[0].Reason(), shortages[0].Message())
	}
	return nil
}

// capacity returns what the pods can request of a resource; limited is false if that has no limit.
func (l Limits) capacity(name v1.ResourceName) (q resource.Quantity, limited bool) {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		q, limited = l.Allocatable[name]
	}
	return q, limited
}

// portConflict returns a host port of the pod that an active pod uses too, and that pod.
// Two ports conflict if port and protocol are the same, and the addresses are the same or
// one of them is the unspecified address. The time is proportional to the number of ports.
func portConflict(pod *v1.Pod, active []*v1.Pod) (string, *v1.Pod) {
	// Each port is there with its address, and with none.
	requested := map[hostPort]struct{}{}
	for p := range hostPorts(pod) {
		requested[p] = struct{}{}
		p.ip = ""
		requested[p] = struct{}{}
	}
	if len(requested) == 0 {
		return "", nil
	}
	for _, other := range active {
		for theirs := range hostPorts(other) {
			same, unspecified, some := theirs, theirs, theirs
			unspecified.ip, some.ip = anyAddress, ""
			_, conflict := requested[same]
			if !conflict {
				_, conflict = requested[unspecified]
			}
			if !conflict && theirs.ip == anyAddress {
				_, conflict = requested[some]
			}
			if conflict {
				return fmt.Sprintf("%d/%s", theirs.port, theirs.protocol), other
			}
		}
	}
	return "", nil
}

const anyAddress = "0.0.0.0"

type hostPort struct {
	ip       string
	port     int32
	protocol v1.Protocol
}

// hostPorts yields the host ports of a pod. None has an empty address.
func hostPorts(pod *v1.Pod) iter.Seq[hostPort] {
	return func(yield func(hostPort) bool) {
		for kind, c := range podspec.Containers(&pod.Spec) {
			if kind == podspec.EphemeralContainer || kind == podspec.InitContainer && !podspec.IsSidecar(c) {
				continue // kubelet counts main containers and sidecars only
			}
			for i := range c.Ports {
				p := &c.Ports[i]
				if p.HostPort == 0 {
					continue
				}
				hp := hostPort{ip: p.HostIP, port: p.HostPort, protocol: p.Protocol}
				if hp.ip == "" || hp.ip == "::" {
					hp.ip = anyAddress
				}
				if hp.protocol == "" {
					hp.protocol = v1.ProtocolTCP
				}
				if !yield(hp) {
					return
				}
			}
		}
	}
}

// withinLimit returns a version of the pod that has no more than podspec.MaxContainers, and a message if that differs
// from the pod. Users of an API server add ephemeral containers to a pod that runs, and none is ever removed: those
// beyond the limit are left out, and the pod is not refused for them. If the pod has too many other containers, and has
// had fewer in the old version, which may be nil, it keeps those.
func withinLimit(old, pod *v1.Pod) (within *v1.Pod, message string) {
	spec, kept := &pod.Spec, *pod
	others := len(spec.InitContainers) + len(spec.Containers)
	left := len(spec.EphemeralContainers) - max(0, podspec.MaxContainers-others)
	switch {
	case others > podspec.MaxContainers && old != nil:
		kept.Spec = old.Spec
		return &kept, fmt.Sprintf("The update is not applied: a pod must have at most %d containers",
			podspec.MaxContainers)
	case left <= 0:
		return pod, ""
	}
	kept.Spec.EphemeralContainers = spec.EphemeralContainers[:len(spec.EphemeralContainers)-left]
	return &kept, fmt.Sprintf("The last %d ephemeral containers are not started: a pod must have at most %d containers",
		left, podspec.MaxContainers)
}

// withinLimit returns the pods as the function of that name does, and emits the messages.
func (h *PodHandler) withinLimit(pods []*v1.Pod) []*v1.Pod {
	var out []*v1.Pod // nil while it would be the same
	for i, pod := range pods {
		old, _ := h.deps.Pods.ByUID(pod.UID)
		within, message := withinLimit(old, pod)
		if within == pod {
			continue
		}
		if out == nil {
			out = slices.Clone(pods)
		}
		out[i] = within
		h.emit(pod, v1.EventTypeWarning, reasonTooMany, message)
	}
	if out == nil {
		return pods
	}
	return out
}

// reasonTooMany is the reason of events about pods with more containers than podspec.MaxContainers.
const reasonTooMany = "TooManyContainers"

// admit calls the admitter, after a check that the UID can be the name of the pod's
// directory, that the pod has containers, and that it has not too many of these or references: pods of sources
// that do not validate them may have no container, and would be Pending for ever. It returns nil or the
// refusal. A panic of the admitter is a refusal.
func admit(a lifecycle.Admitter, req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, *runtime.TerminalError) {
	if uid := req.Pod.UID; !podspec.IsFileName(uid) {
		return lifecycle.AdmitResponse{}, &runtime.TerminalError{Reason: "InvalidUID",
			Message: fmt.Sprintf("metadata.uid %.64q cannot be the name of a directory; leave it out or use a UUID",
				string(uid))}
	}
	if len(req.Pod.Spec.Containers) == 0 {
		// The reason and the text of kubelet and of podconfig/manifest for such a manifest.
		return lifecycle.AdmitResponse{}, &runtime.TerminalError{Reason: "FailedValidation",
			Message: "spec.containers: Required value"}
	}
	spec := &req.Pod.Spec
	if n := len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers); n > podspec.MaxContainers {
		return lifecycle.AdmitResponse{}, &runtime.TerminalError{Reason: "FailedValidation",
			Message: fmt.Sprintf("spec.containers: Too many: %d: must have at most %d items, with init and "+
				"ephemeral containers", n, podspec.MaxContainers)}
	}
	if refs, _, within := podspec.BoundedReferences(req.Pod, objects.References); !within {
		return lifecycle.AdmitResponse{}, &runtime.TerminalError{Reason: "FailedValidation",
			Message: fmt.Sprintf("spec: Too many: %d: must refer to at most %d secrets and config maps", len(refs),
				podspec.MaxReferences)}
	}
	var response lifecycle.AdmitResponse
	err := runtime.Recover(func() (err error) {
		response, err = a.Admit(req)
		return err
	})
	if err == nil {
		return response, nil
	}
	if refusal := (*runtime.TerminalError)(nil); errors.As(err, &refusal) {
		return lifecycle.AdmitResponse{}, refusal
	}
	return lifecycle.AdmitResponse{}, &runtime.TerminalError{Reason: "UnexpectedAdmissionError", Message: err.Error()}
}

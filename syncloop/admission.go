package syncloop

import (
	"fmt"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Admission is the verdict on a pod that wants to run on the node.
type Admission struct {
	Admitted bool
	// Reason and Message are for the status of a pod that was refused.
	Reason, Message string
}

// Limits are what a node has to give; a zero field does not limit.
type Limits struct {
	// MaxPods is how many pods may be active.
	MaxPods int
	// Allocatable CPU, memory and ephemeral storage, of which the requests of the
	// active pods are taken.
	Allocatable v1.ResourceList
}

// Admit judges a pod beside those that are active, by the predicates that kubelet
// applies: the operating system that it is for, the number of pods, the resources
// that their requests reserve, and ports of the host that two would claim. Node
// selectors, affinity and taints are the business of a scheduler and do not count
// here.
func Admit(limits Limits, pod *v1.Pod, active []*v1.Pod) Admission {
	if os := pod.Spec.OS; os != nil && string(os.Name) != goruntime.GOOS {
		return Admission{Reason: "PodOSNotSupported", Message: fmt.Sprintf("spec.os.name is %s, and the node runs %s", os.Name, goruntime.GOOS)}
	}
	if limits.MaxPods > 0 && len(active) >= limits.MaxPods {
		return Admission{Reason: "OutOfpods", Message: fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(active), limits.MaxPods)}
	}
	if port, other := portConflict(pod, active); other != nil {
		return Admission{Reason: "NodePorts", Message: fmt.Sprintf("host port %s is used by pod %s/%s", port, other.Namespace, other.Name)}
	}
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		capacity, limited := limits.Allocatable[name]
		if !limited {
			continue
		}
		want := request(pod, name)
		if want.IsZero() {
			continue
		}
		var used resource.Quantity
		for _, p := range active {
			used.Add(request(p, name))
		}
		free := capacity.DeepCopy()
		free.Sub(used)
		if want.Cmp(free) > 0 {
			return Admission{
				Reason:  "OutOf" + string(name),
				Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s", name, want.String(), used.String(), capacity.String()),
			}
		}
	}
	return Admission{Admitted: true}
}

func request(pod *v1.Pod, name v1.ResourceName) resource.Quantity {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name]
}

// portConflict returns a host port that the pod and an active one both claim.
// Ports conflict when port and protocol are the same and the addresses are, or
// one of them is every address.
func portConflict(pod *v1.Pod, active []*v1.Pod) (string, *v1.Pod) {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return "", nil
	}
	for _, other := range active {
		for _, theirs := range hostPorts(other) {
			for _, ours := range wanted {
				if ours.port == theirs.port && ours.protocol == theirs.protocol &&
					(ours.ip == theirs.ip || ours.ip == anyAddress || theirs.ip == anyAddress) {
					return fmt.Sprintf("%d/%s", ours.port, ours.protocol), other
				}
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

func hostPorts(pod *v1.Pod) []hostPort {
	var ports []hostPort
	for kind, c := range runtime.Containers(&pod.Spec) {
		if kind == runtime.EphemeralContainer || kind == runtime.InitContainer && !runtime.IsSidecar(c) {
			continue // gone, or nearly so, when the pod does its work
		}
		for _, p := range c.Ports {
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
			ports = append(ports, hp)
		}
	}
	return ports
}

// judgeUID refuses a UID that could not be the name of a directory.
func judgeUID(uid types.UID) Admission {
	if !runtime.IsFileName(uid) {
		return Admission{Reason: "InvalidUID", Message: fmt.Sprintf("metadata.uid %.64q cannot be the name of a directory; leave it out or use a UUID", string(uid))}
	}
	return Admission{Admitted: true}
}

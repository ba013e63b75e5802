package admission

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Reasons of pods that are refused, beside those that begin with "OutOf". They are kubelet's.
const (
	ReasonOSLabel      = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonNodeAffinity = "NodeAffinity"
	ReasonNodeName     = "NodeName"
	ReasonTaint        = "TaintToleration"
	ReasonNoNode       = "InvalidNodeInfo"
)

// Node is the node as pods are compared with it.
type Node struct {
	// Node has the name, labels, taints and allocatable resources. It must not be changed.
	*v1.Node
	// Confirmed means that labels and taints are those of the API server. Otherwise
	// affinity and taints are not checked, and neither are resources that are not known.
	Confirmed bool
	// CompareTaints has tolerations with the operators Lt and Gt compare the values of taints as numbers (KEP-5471).
	// Otherwise they match nothing.
	CompareTaints bool
	// managed is that of the options.
	managed func(name v1.ResourceName) bool
}

// Failure is one reason why a pod does not fit on a node.
type Failure struct {
	// Reason is one word, for the status of the pod.
	Reason string
	// Message is a sentence for people.
	Message string
	// Resource is the resource that is missing, and Missing how much of it, in the unit of
	// the request: thousandths for CPU, otherwise whole units. Empty for other failures.
	Resource v1.ResourceName
	Missing  int64
}

// Failures returns why the pod cannot run on the node beside the active pods, and nil if it
// can. Resources come first, in the order of kubelet.
func Failures(pod *v1.Pod, active []*v1.Pod, node Node) []Failure {
	return compare(pod, active, node, request)
}

// compare is Failures with a function that returns the request of a pod.
func compare(pod *v1.Pod, active []*v1.Pod, node Node, request requestFunc) []Failure {
	failures := resourceFailures(pod, active, node, request)
	if node.Confirmed {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node.Node); !ok || err != nil {
			failures = append(failures, predicate(ReasonNodeAffinity, "node(s) didn't match Pod's node "+
				"affinity/selector"))
		}
	}
	if name := pod.Spec.NodeName; name != "" && name != node.Name {
		failures = append(failures, predicate(ReasonNodeName, "node(s) didn't match the requested node name"))
	}
	if node.Confirmed && !podspec.IsStatic(pod) {
		noExecute := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }
		if _, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints,
			pod.Spec.Tolerations, noExecute, node.CompareTaints); untolerated {
			failures = append(failures, predicate(ReasonTaint, "node(s) had taints that the pod didn't tolerate"))
		}
	}
	return failures
}

func predicate(reason, description string) Failure {
	return Failure{Reason: reason, Message: fmt.Sprintf("Predicate %s failed: %s", reason, description)}
}

// resourceFailures compares the request of the pod with what the active pods leave.
func resourceFailures(pod *v1.Pod, active []*v1.Pod, node Node, request requestFunc) (failures []Failure) {
	fail := func(s podspec.Shortage) {
		failures = append(failures, Failure{Reason: s.Reason(), Message: s.Message(), Resource: s.Resource,
			Missing: s.Missing()})
	}
	allocatable := node.Status.Allocatable
	if pods, ok := allocatable[v1.ResourcePods]; ok {
		if s, short := podspec.PodShortage(int64(len(active)), pods.Value()); short {
			fail(s)
		}
	}
	capacity := func(name v1.ResourceName) (q resource.Quantity, limited bool) {
		if node.managed != nil && podspec.IsExtendedResource(name) && node.managed(name) {
			return q, false
		}
		q, known := allocatable[name]
		return q, known || node.Confirmed && !podspec.IsExtendedResource(name)
	}
	for _, s := range podspec.Shortages(pod, active, request, capacity) {
		fail(s)
	}
	return failures
}

// request returns the request of a pod, without its extended resources that are backed by a resource claim (KEP-5004):
// the node has no number of these.
func request(pod *v1.Pod) v1.ResourceList {
	e := pod.Status.ExtendedResourceClaimStatus
	if e == nil {
		return podspec.Requests(pod)
	}
	without := &v1.Pod{ObjectMeta: pod.ObjectMeta, Spec: *pod.Spec.DeepCopy(), Status: pod.Status}
	for _, list := range [][]v1.Container{without.Spec.InitContainers, without.Spec.Containers} {
		for i := range list {
			for _, m := range e.RequestMappings {
				if m.ContainerName == list[i].Name {
					delete(list[i].Resources.Requests, v1.ResourceName(m.ResourceName))
				}
			}
		}
	}
	return podspec.Requests(without)
}

// requestFunc returns the request of a pod, which must not be changed.
type requestFunc func(pod *v1.Pod) v1.ResourceList

func requestOf(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return podspec.Amount(name, request(pod)[name])
}

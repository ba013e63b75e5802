package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Reasons of pods that are refused, beside those that begin with "OutOf". They are kubelet's.
const (
	ReasonOSLabel      = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonNodeAffinity = "NodeAffinity"
	ReasonNodeName     = "NodeName"
	ReasonTaint        = "TaintToleration"
	ReasonNoNode       = "InvalidNodeInfo"
)

// compareTaints is whether tolerations may compare the values of taints as numbers (KEP-5471). The
// feature is off in kubelet 1.36, so that they match nothing.
const compareTaints = false

// Node is the node as pods are compared with it.
type Node struct {
	// Node has the name, labels, taints and allocatable resources. It must not be changed.
	*v1.Node
	// Confirmed means that labels and taints are those of the API server. Otherwise
	// affinity and taints are not checked, and neither are resources that are not known.
	Confirmed bool
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
			failures = append(failures, predicate(ReasonNodeAffinity, "node(s) didn't match Pod's node affinity/selector"))
		}
	}
	if name := pod.Spec.NodeName; name != "" && name != node.Name {
		failures = append(failures, predicate(ReasonNodeName, "node(s) didn't match the requested node name"))
	}
	if node.Confirmed && !runtime.IsStatic(pod) {
		noExecute := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }
		if _, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, noExecute, compareTaints); untolerated {
			failures = append(failures, predicate(ReasonTaint, "node(s) had taints that the pod didn't tolerate"))
		}
	}
	return failures
}

func predicate(reason, description string) Failure {
	return Failure{Reason: reason, Message: fmt.Sprintf("Predicate %s failed: %s", reason, description)}
}

// resourceFailures compares the request of the pod with what the active pods leave.
func resourceFailures(pod *v1.Pod, active []*v1.Pod, node Node, request requestFunc) []Failure {
	var failures []Failure
	allocatable := node.Status.Allocatable
	fail := func(name v1.ResourceName, requested, used, capacity int64) {
		failures = append(failures, Failure{
			Reason: "OutOf" + string(name),
			Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, requested, used, capacity),
			Resource: name, Missing: requested - (capacity - used),
		})
	}
	if pods, ok := allocatable[v1.ResourcePods]; ok && int64(len(active))+1 > pods.Value() {
		fail(v1.ResourcePods, 1, int64(len(active)), pods.Value())
	}
	want := request(pod)
	names := slices.DeleteFunc(ordered(want), func(name v1.ResourceName) bool { return amount(name, want[name]) == 0 })
	if len(names) == 0 {
		return failures
	}
	held := v1.ResourceList{}
	for _, p := range active {
		for name, q := range request(p) {
			sum := held[name]
			sum.Add(q)
			held[name] = sum
		}
	}
	for _, name := range names {
		requested := amount(name, want[name])
		capacity, known := allocatable[name]
		if !known && (isExtended(name) || !node.Confirmed) {
			continue
		}
		used := amount(name, held[name])
		if has := amount(name, capacity); requested > has-used {
			fail(name, requested, used, has)
		}
	}
	return failures
}

// requestFunc returns the request of a pod, which must not be changed.
type requestFunc func(pod *v1.Pod) v1.ResourceList

func request(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

func requestOf(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, request(pod)[name])
}

// amount returns the quantity in the unit in which kubelet compares and shows it.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// ordered returns the names of the resources: first those that each node has, as kubelet
// reports them, then the others by name.
func ordered(list v1.ResourceList) []v1.ResourceName {
	rank := map[v1.ResourceName]int{v1.ResourceCPU: 1, v1.ResourceMemory: 2, v1.ResourceEphemeralStorage: 3}
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		ra, rb := cmp.Or(rank[a], 4), cmp.Or(rank[b], 4)
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(a, b))
	})
	return names
}

// isExtended reports whether the resource is outside of the domain of Kubernetes.
func isExtended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix)
}

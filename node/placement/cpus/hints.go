package cpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Exclusive returns how many exclusive CPUs a container of the pod gets: what it requests, if the pod is Guaranteed and
// the request is whole; 0 otherwise. In a pod with resources as a whole, the container gets them only with wholePods,
// and if its own requests of CPU and memory equal its limits, see [Options].WholePods.
func Exclusive(pod *v1.Pod, c *v1.Container, wholePods bool) int {
	if resourcehelper.IsPodLevelResourcesSet(pod) && (!wholePods || !podspec.HasGuaranteedResources(c)) ||
		podspec.QOSClass(pod) != v1.PodQOSGuaranteed {
		return 0
	}
	return wholeNumber(c.Resources.Requests[v1.ResourceCPU])
}

// wholeNumber returns the number of CPUs, 0 if it is not whole.
func wholeNumber(request resource.Quantity) int {
	const most = 1 << 20 // more CPUs than any machine has
	if request.MilliValue()%1000 != 0 {
		return 0
	}
	return int(min(request.Value(), most))
}

// ExclusiveOfPod returns how many exclusive CPUs the containers of the pod need at a time: ended init containers leave
// theirs to others (KEP-753). With wholePods, a pod with resources as a whole needs what it requests.
func ExclusiveOfPod(pod *v1.Pod, wholePods bool) int {
	if wholePods && resourcehelper.IsPodLevelResourcesSet(pod) {
		return wholeCPUs(pod)
	}
	sidecars, init, main := 0, 0, 0
	for kind, c := range podspec.Containers(&pod.Spec) {
		n := Exclusive(pod, c, wholePods)
		switch {
		case kind == podspec.MainContainer:
			main += n
		case kind != podspec.InitContainer:
		case podspec.IsSidecar(c):
			sidecars += n
		default:
			init = max(init, sidecars+n)
		}
	}
	return max(init, sidecars+main)
}

// Hints returns the sets of memory nodes with at least n free CPUs. Those are preferred that have as few nodes as an
// empty machine needs, or with the option align-by-socket as few sockets. The CPUs in reusable are free for this
// container only; a set must have all of them. It is a pure function, for machines with few nodes: there are 2 to the
// power of their number.
func Hints(machine numa.Machine, free, reusable cpuset.CPUSet, n int, opts PolicyOptions) []numa.Hint {
	return newLayout(machine).hints(free, reusable, n, opts)
}

func (l *layout) hints(free, reusable cpuset.CPUSet, n int, opts PolicyOptions) []numa.Hint {
	var all, required numa.Nodes
	available := map[int]int{} // by the IDs of nodes
	for _, g := range l.groups[node] {
		all |= numa.Of(g.id)
	}
	for _, id := range free.Union(reusable).UnsortedList() {
		if i, ok := l.index[id]; ok {
			available[l.cpus[i].Node]++
			if reusable.Contains(id) {
				required |= numa.Of(l.cpus[i].Node)
			}
		}
	}
	cpus := func(set numa.Nodes) (capacity, has int) {
		for _, g := range l.groups[node] {
			if set.Has(g.id) {
				capacity += len(g.cpus)
				has += available[g.id]
			}
		}
		return capacity, has
	}
	could := func(set numa.Nodes) bool { capacity, _ := cpus(set); return capacity >= n }
	can := func(set numa.Nodes) bool { _, has := cpus(set); return has >= n && set.Contains(required) }
	hints := []numa.Hint{}
	for h, fewest := range numa.Hints(all, could, can) {
		h.Preferred = h.Preferred || opts.AlignBySocket && l.socketAligned(h.Nodes, fewest)
		hints = append(hints, h)
	}
	return hints
}

// socketAligned reports whether the nodes are on no more sockets than so many nodes need.
func (l *layout) socketAligned(nodes numa.Nodes, fewest int) bool {
	perSocket := len(l.groups[node]) / len(l.groups[socket])
	if perSocket == 0 {
		return false
	}
	return len(l.socketsOf(nodes)) == (fewest+perSocket-1)/perSocket
}

// socketsOf returns the sockets with a CPU on the nodes.
func (l *layout) socketsOf(nodes numa.Nodes) map[int]bool {
	sockets := map[int]bool{}
	for _, c := range l.cpus {
		if nodes.Has(c.Node) {
			sockets[c.Socket] = true
		}
	}
	return sockets
}

// near returns the CPUs of the set that are on the nodes, or with the option align-by-socket on their sockets.
func (l *layout) near(set cpuset.CPUSet, nodes numa.Nodes, opts PolicyOptions) cpuset.CPUSet {
	if opts.AlignBySocket {
		sockets := l.socketsOf(nodes)
		return l.within(set, socket, func(id int) bool { return sockets[id] })
	}
	return l.within(set, node, nodes.Has)
}

// takeNear takes n of the free CPUs, those near the nodes first. No nodes means anywhere.
func (l *layout) takeNear(free cpuset.CPUSet, n int, nodes numa.Nodes, opts PolicyOptions) (cpuset.CPUSet, error) {
	taken := cpuset.New()
	if nodes != 0 {
		near := l.near(free, nodes, opts)
		var err error
		if taken, err = l.take(near, min(n, near.Size()), opts); err != nil {
			return taken, err
		}
	}
	rest, err := l.take(free.Difference(taken), n-taken.Size(), opts)
	return taken.Union(rest), err
}

package topology_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/placement/topology/fake"
)

// lastNode is a vendor's policy: what a container needs is on the last node that suits it, because the first ones have
// the interrupts.
type lastNode struct{}

func (lastNode) Name() string { return "last-node" }

func (lastNode) Merge(providers []map[string][]numa.Hint) (numa.Hint, bool) {
	best, cares := numa.Hint{}, false
	for _, hints := range providers {
		for _, list := range hints {
			cares = true
			for _, h := range list {
				if h.Nodes.Len() == 1 && h.Nodes > best.Nodes {
					best = h
				}
			}
		}
	}
	return best, !cares || best.Nodes != 0
}

// A policy is tested with providers that are made of numbers.
func Example() {
	ports := fake.New("example.com/port", map[int]int{0: 4, 1: 2})
	manager, err := topology.New(topology.Options{Policy: lastNode{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	node := nodefake.NewNode()
	node.SetComponents(ports, manager) // Options.Join of an agent
	if err := manager.Join(node); err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"example.com/port": resource.MustParse("2")},
		}}}}}
		pod.Name, pod.UID = name, types.UID(name)
		_, err := manager.Admit(lifecycle.AdmitRequest{Pod: pod})
		fmt.Println(name, ports.Given(pod.UID, "main"), err)
	}
	// Output:
	// a [1 1] <nil>
	// b [0 0] <nil>
	// c [0 0] <nil>
	// d [] TopologyAffinityError: Resources cannot be allocated with Topology locality: container "main" can have example.com/port on no NUMA node
}

package cpus_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// noContainers is a runtime without running containers. That of an agent is runtime/cri.
type noContainers struct{}

func (noContainers) SetCPUSet(context.Context, runtime.ContainerID, string) error {
	return runtime.ErrNotFound
}

func Example() {
	dir, err := os.MkdirTemp("", "cpus")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	// Two nodes with four CPUs each. numa.Read returns the real ones.
	var machine numa.Machine
	for id := range 8 {
		machine.CPUs = append(machine.CPUs, numa.CPU{ID: id, Core: id, Socket: id / 4 * 4, UncoreCache: id / 4 * 4,
			Node: id / 4})
	}
	machine.Nodes = []numa.Node{{ID: 0}, {ID: 1}}
	manager, err := cpus.New(machine, filepath.Join(dir, cpus.CheckpointName), noContainers{},
		cpus.Options{ReservedCount: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := topology.NewPolicy(topology.PolicySingleNUMANode, machine, topology.PolicyOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	admitter, err := topology.New(topology.Options{Policy: policy})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The agent does the rest: both are in Options.Join.
	node := fake.NewNode()
	node.SetComponents(manager, admitter)
	if err := admitter.Join(node); err != nil {
		fmt.Println(err)
		return
	}
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Gi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main",
		Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}}}
	pod.Name, pod.UID = "database", "1"
	_, err = admitter.Admit(lifecycle.AdmitRequest{Pod: pod})
	fmt.Println(manager.Exclusive("1", "main"), manager.Shared(), err)

	second := pod.DeepCopy()
	second.UID = "2"
	_, err = admitter.Admit(lifecycle.AdmitRequest{Pod: second})
	fmt.Println(err)
	// Output:
	// 4-7 0-3 <nil>
	// TopologyAffinityError: Resources cannot be allocated with Topology locality: container "main" can have cpu on no NUMA node
}

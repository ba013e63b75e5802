package memory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

func Example() {
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	machine := numa.Machine{Nodes: []numa.Node{{ID: 0, Memory: 8 << 30}, {ID: 1, Memory: 8 << 30}}}
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	manager, err := memory.New(filepath.Join(dir, memory.FileName), machine, memory.Options{
		Reserved:     []memory.Reservation{{Node: 0, Limits: reserved}},
		NodeReserved: reserved,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	amounts := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("8Gi")}
	pod := &v1.Pod{}
	pod.UID = "uid"
	pod.Spec.Containers = []v1.Container{{Name: "db", Resources: v1.ResourceRequirements{Requests: amounts,
		Limits: amounts}}}
	db := &pod.Spec.Containers[0]

	// A topology manager calls these.
	for _, hint := range manager.Hints(pod, db)["memory"] {
		fmt.Printf("nodes %s, preferred: %v\n", hint.Nodes, hint.Preferred)
	}
	if err := manager.Allocate(pod, db, numa.Hint{}); err != nil {
		fmt.Println(err)
		return
	}
	// The agent calls this.
	edits, err := manager.EditContainer(context.Background(), pod, db)
	fmt.Println("cpuset.mems:", edits.MemorySet, err)
	// Output:
	// nodes 1, preferred: true
	// nodes 0-1, preferred: false
	// cpuset.mems: 1 <nil>
}

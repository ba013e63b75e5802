package cgroup_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

func ExamplePods_Parent() {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1234-abcd"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	for _, driver := range []string{"cgroupfs", "systemd"} {
		cgroups, err := cgroup.New(cgroup.Options{Driver: func() string { return driver }})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(cgroups.Parent(pod))
	}
	// Output:
	// /kubepods/besteffort/pod1234-abcd
	// /kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1234_abcd.slice
}

func ExamplePodResources() {
	half := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{
			{Name: "web", Resources: v1.ResourceRequirements{Requests: half, Limits: half}},
			{Name: "log", Resources: v1.ResourceRequirements{Requests: half, Limits: half}},
		},
		Overhead: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}, // of its RuntimeClass
	}}
	r := cgroup.PodResources(pod, cgroup.Policy{PodPidsLimit: 1024})
	fmt.Println("cpu.shares", r.CPUShares, "or cpu.weight", cgroup.Weight(r.CPUShares))
	fmt.Println("cpu.max", r.CPUQuota, r.CPUPeriod)
	fmt.Println("memory.max", r.MemoryMax>>20, "MiB")
	fmt.Println("pids.max", r.PidsMax)
	// Output:
	// cpu.shares 1024 or cpu.weight 39
	// cpu.max 100000 100000
	// memory.max 144 MiB
	// pids.max 1024
}

// An agent whose pods have cgroups with limits.
func ExampleNewManager() {
	pods, err := cgroup.New(cgroup.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager, err := cgroup.NewManager(pods, cgroup.ManagerOptions{
		Policy: cgroup.Policy{PodPidsLimit: 4096},
		Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"),
			v1.ResourceMemory: resource.MustParse("8Gi")},
		KubeReserved: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
		Enforce:      []cgroup.Enforcement{cgroup.EnforcePods},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Parent is for cri.Options.CgroupParent, the manager for Options.Join and Options.GC.Cgroups of an agent.
	fmt.Println(manager.Name())
	// Output: cgroups
}

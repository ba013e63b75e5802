package cgroup_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/resources/cgroup"
)

func ExamplePods_Parent() {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1234-abcd"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
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

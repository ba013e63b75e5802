package podresources_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

func Example() {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name = "default", "web"
	pod.Spec.Containers = []v1.Container{{Name: "c"}}
	ports := podresources.Source{Of: func(*v1.Pod, *v1.Container) podresources.Resources {
		return podresources.Resources{Devices: []podresources.Devices{{Resource: "example.com/port",
			IDs: []string{"ttyS0"}, Nodes: numa.Of(0)}}}
	}}
	cpus := podresources.Source{Of: func(*v1.Pod, *v1.Container) podresources.Resources {
		return podresources.Resources{CPUs: cpuset.New(2, 3)}
	}}
	server, err := podresources.New("/var/lib/kubelet/pod-resources/kubelet.sock",
		[]podresources.Source{ports, cpus}, podresources.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// With Options.Join an agent gives it its pods, and runs it.
	if err := server.Join(fake.NewNode(pod)); err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range server.List() {
		for _, c := range p.Containers {
			fmt.Printf("%s/%s, container %s: CPUs %s, %s %v on node %s\n", p.Namespace, p.Name, c.Name, c.CPUs,
				c.Devices[0].Resource, c.Devices[0].IDs, c.Devices[0].Nodes)
		}
	}
	// Output: default/web, container c: CPUs 2-3, example.com/port [ttyS0] on node 0
}

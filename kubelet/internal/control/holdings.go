package control

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/podresources"
)

// Holding is something that a container holds of the node, for itself.
type Holding struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Resource is the name of the resource, such as cpu or example.com/gpu, or of a claim.
	Resource string `json:"resource"`
	// Held are the CPUs, the amount of memory, or the IDs of the devices.
	Held string `json:"held"`
	// Nodes are the memory nodes (NUMA nodes); "" if they are not known.
	Nodes string `json:"nodes,omitempty"`
}

// Holdings returns what the containers of the pods hold.
func Holdings(pods []podresources.Pod) []Holding {
	out := []Holding{}
	for _, p := range pods {
		for _, c := range p.Containers {
			add := func(resource, held, nodes string) {
				out = append(out, Holding{p.Namespace, p.Name, c.Name, resource, held, nodes})
			}
			if c.CPUs.Size() > 0 {
				add(string(v1.ResourceCPU), c.CPUs.String(), "")
			}
			for _, m := range c.Memory {
				add(string(m.Resource), resource.NewQuantity(int64(m.Size), resource.BinarySI).String(),
					m.Nodes.String())
			}
			for _, d := range c.Devices {
				add(string(d.Resource), strings.Join(d.IDs, ","), d.Nodes.String())
			}
			for _, claim := range c.Claims {
				var devices []string
				for _, d := range claim.Devices {
					devices = append(devices, d.Driver+"/"+d.Pool+"/"+d.Device)
				}
				add("claim "+claim.Name, strings.Join(devices, ","), "")
			}
		}
	}
	return out
}

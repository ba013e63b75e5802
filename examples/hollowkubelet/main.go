// Hollowkubelet is a complete kubelet whose containers are in memory, as those of kubemark's hollow nodes: nothing of a
// pod runs, and all else is real. It shows how a program replaces the container runtime of a kubelet, as one for
// virtual machines would be.
//
//	go run ./examples/hollowkubelet --pod-manifest-path examples/minikubelet/manifests
package main

import (
	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func main() { kubelet.Main(options()) }

// options returns a kubelet on a runtime in memory. The runtime needs no end, since the process ends with the kubelet.
func options() kubelet.Options {
	return kubelet.Options{Name: "hollowkubelet", Runtime: fake.New(fake.Options{})}
}

package podsapi_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/podsapi"
)

func Example() {
	server, err := podsapi.New("/var/lib/kubelet/pods-api/pods-api.sock", podsapi.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// With Options.Join an agent gives it its pods, and runs it.
	web := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.88.0.7"}}
	web.Namespace, web.Name, web.UID = "default", "web", "4c1b"
	if err := server.Join(fake.NewNode(web)); err != nil {
		fmt.Println(err)
		return
	}
	// A client calls the same through the socket.
	answer, err := server.GetPod(context.TODO(), &podsv1alpha1.GetPodRequest{PodUID: "4c1b"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var pod v1.Pod
	if err := pod.Unmarshal(answer.GetPod()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Namespace, pod.Name, pod.Status.Phase, pod.Status.PodIP)
	// Output: default web Running 10.88.0.7
}

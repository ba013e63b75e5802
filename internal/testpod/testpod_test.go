package testpod_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

func Example() {
	pod := testpod.New("web", testpod.Static, testpod.Containers("main"), testpod.Sidecar(v1.Container{Name: "proxy"}))
	deleted := testpod.With(pod, testpod.Deleted(5), func(p *v1.Pod) { p.Generation = 2 })
	fmt.Println(pod.Namespace, pod.Name, pod.UID, pod.Annotations)
	fmt.Println(pod.Spec.Containers[0].Image, *pod.Spec.InitContainers[0].RestartPolicy)
	fmt.Println(pod.DeletionTimestamp == nil, *deleted.DeletionGracePeriodSeconds)
	// Output:
	// default web uid-web map[kubernetes.io/config.source:file]
	// image:1 Always
	// true 5
}

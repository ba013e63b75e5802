package devices_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func Example() {
	port := func(path string) runtime.ContainerEdits {
		return runtime.ContainerEdits{Devices: []runtime.Device{{HostPath: path, ContainerPath: "/dev/modbus",
			Permissions: "rw"}}}
	}
	ports := devices.Fixed("example.com/modbus", map[string]runtime.ContainerEdits{"line-1": port("/dev/ttyUSB0"),
		"line-2": port("/dev/ttyUSB1")})
	manager, err := devices.New("", devices.Options{Providers: []devices.Provider{ports}})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The agent does the rest, with the manager in kubeletkit.Options.Join.
	known := make(chan struct{}, 1)
	node := &fake.Node{Do: func(method string) {
		if method == "NodeStatusChanged" {
			select {
			case known <- struct{}{}:
			default:
			}
		}
	}}
	if err := manager.Join(node); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- manager.Run(ctx) }()
	<-known
	for _, name := range []string{"a", "b", "c"} {
		c := v1.Container{Name: "main",
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"example.com/modbus": resource.MustParse("1")}}}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec: v1.PodSpec{Containers: []v1.Container{c}}}
		if _, err := manager.Admit(lifecycle.AdmitRequest{Pod: pod}); err != nil {
			fmt.Printf("pod %s: %v\n", name, err)
			break
		}
		if _, err := manager.Prepare(ctx, lifecycle.PrepareRequest{Pod: pod}); err != nil {
			fmt.Println(err)
		}
		edits, err := manager.EditContainer(ctx, pod, &pod.Spec.Containers[0])
		fmt.Printf("pod %s has %s (%s) %v\n", name, manager.Devices(pod.UID)[0].Devices[0].ID,
			edits.Devices[0].HostPath, err)
	}
	stop()
	fmt.Println(<-done)
	// Output:
	// pod a has line-1 (/dev/ttyUSB0) <nil>
	// pod b has line-2 (/dev/ttyUSB1) <nil>
	// pod c: UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for example.com/modbus. Requested: 1, Available: 0, which is unexpected
	// <nil>
}

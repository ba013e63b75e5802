package dra_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/dra"
)

// ports is a driver in this process.
type ports struct{}

func (ports) Prepare(_ context.Context, claims []dra.Claim) (map[types.UID]dra.Prepared, error) {
	out := map[types.UID]dra.Prepared{}
	for _, c := range claims {
		fmt.Println("prepare", c.Name)
		out[c.UID] = dra.Prepared{Devices: []dra.Device{{Pool: "edge-7", Name: "port-0",
			CDIDevices: []string{"example.com/port=0"}}}}
	}
	return out, nil
}

func (ports) Unprepare(_ context.Context, claims []dra.Claim) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		fmt.Println("unprepare", c.Name)
		out[c.UID] = nil
	}
	return out, nil
}

// api has one claim.
type api struct{ claim resourceapi.ResourceClaim }

func (a *api) Claim(context.Context, string, string) (*resourceapi.ResourceClaim, error) {
	return &a.claim, nil
}

func Example() {
	dir, err := os.MkdirTemp("", "state")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	name := "serial"
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "meter", UID: "1"}}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "port", ResourceClaimName: &name}}
	pod.Spec.Containers = []v1.Container{{Name: "main",
		Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "port"}}}}}
	claims := &api{claim: resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: "2"}, Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "port", Driver: "ports.example.com",
				Pool: "edge-7", Device: "port-0"}},
		}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}}}

	manager, err := dra.New(dir, claims, dra.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager.Add("ports.example.com", ports{}).SetConnected(true)
	ctx := context.Background()
	if _, err := manager.Prepare(ctx, lifecycle.PrepareRequest{Pod: pod}); err != nil {
		fmt.Println(err)
		return
	}
	edits, err := manager.EditContainer(ctx, pod, &pod.Spec.Containers[0])
	fmt.Println(edits.CDIDevices, err)
	fmt.Println(manager.Ended(ctx, lifecycle.EndedRequest{Pod: pod}))
	// Output:
	// prepare serial
	// [example.com/port=0] <nil>
	// unprepare serial
	// <nil>
}

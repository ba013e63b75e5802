package storage_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/storage"
	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

// A driver registers, and a pod waits until its volume is attached.
func Example() {
	volume, pod := csinode.UniqueName("csi.example.com", "vol-1"), &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", UID: "u"},
		Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{volume}}}
	client := apitest.NewClientset(node)
	source, err := tokens.New(client, tokens.Options{})
	if err != nil {
		panic(err)
	}
	s, err := storage.New(client, "edge-7", source, storage.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // the agent runs it
	s.NodeChanged(node)                // node.Node.OnChange calls it

	err = s.Install(ctx, csinode.Driver{Name: "csi.example.com", NodeID: "disk-host-7", MaxVolumes: 25})
	if err != nil {
		panic(err)
	}
	object, err := client.StorageV1().CSINodes().Get(ctx, "edge-7", metav1.GetOptions{})
	if err != nil {
		panic(err)
	}
	for _, driver := range object.Spec.Drivers {
		fmt.Println(driver.Name, driver.NodeID, *driver.Allocatable.Count)
	}

	fmt.Println(s.Attached(ctx, volume, pod))
	attached := node.DeepCopy()
	attached.Status.VolumesAttached = []v1.AttachedVolume{{Name: volume}}
	s.NodeChanged(attached)
	fmt.Println(s.Attached(ctx, volume, pod))

	cancel()
	<-done
	// Output:
	// csi.example.com disk-host-7 25
	// volume not attached according to node status: "kubernetes.io/csi/csi.example.com^vol-1"
	// <nil>
}

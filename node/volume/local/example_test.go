package local_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/local"
)

func Example() {
	disks, err := local.New("/var/lib/kubelet", local.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{disks}})
	fmt.Println(m != nil, err)

	pv := &v1.PersistentVolume{}
	pv.Spec.Local = &v1.LocalVolumeSource{Path: "/dev/disk/by-id/nvme-1"}
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	fmt.Println(disks.Supports(pv), volume.PlaceOf("/var/lib/kubelet/pods/u1", disks.Name(), "pv-1").Device)
	// Output:
	// true <nil>
	// true /var/lib/kubelet/pods/u1/volumeDevices/kubernetes.io~local-volume/pv-1
}

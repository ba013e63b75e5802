package scsi_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
)

func Example() {
	disks, err := scsi.NewISCSI("/var/lib/kubelet", scsi.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{disks}})
	fmt.Println(m != nil, err)

	pv := &v1.PersistentVolume{}
	pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.com.example:disks"}
	fmt.Println(disks.Supports(pv), disks.Key(pv))
	// Output:
	// true <nil>
	// true 10.0.0.1:3260-iqn.2026-01.com.example:disks-lun-0
}

package nfs_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/nfs"
)

func Example() {
	servers, err := nfs.New(nfs.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{servers}})
	fmt.Println(m != nil, err)

	pv := &v1.PersistentVolume{}
	pv.Spec.NFS = &v1.NFSVolumeSource{Server: "nfs.example.com", Path: "/export"}
	fmt.Println(servers.Supports(pv), volume.PlaceOf("/var/lib/kubelet/pods/u1", servers.Name(), "data").Dir)
	// Output:
	// true <nil>
	// true /var/lib/kubelet/pods/u1/volumes/kubernetes.io~nfs/data
}

package terminal

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestVolumeText(t *testing.T) {
	for want, source := range map[string]v1.VolumeSource{
		"emptyDir": {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"emptyDir Memory, limit 1Gi": {EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Memory",
			SizeLimit: new(resource.MustParse("1Gi"))}},
		"hostPath /srv": {HostPath: &v1.HostPathVolumeSource{Path: "/srv"}},
		"claim data":    {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
		"NFS nas:/x":    {NFS: &v1.NFSVolumeSource{Server: "nas", Path: "/x"}},
		"iscsi":         {ISCSI: &v1.ISCSIVolumeSource{}},
	} {
		assert.Equal(t, want, VolumeText(&source))
	}
}

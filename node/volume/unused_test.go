//go:build unix

package volume_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

// A volume that no container uses is not set up, whether it could be or not, until an ephemeral
// container uses it.
func TestUnusedVolumesAreNotSetUp(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	unused := []v1.Volume{
		emptyDir("later", v1.EmptyDirVolumeSource{}),
		{Name: "exotic", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
		{Name: "missing", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "missing"}}},
	}
	p := testpod.With(pod(emptyDir("used", v1.EmptyDirVolumeSource{})), testpod.UnusedVolumes(unused...))
	got, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Len(t, got, 1)
	assert.Contains(t, got, "used")
	later := filepath.Join(dir, "volumes/kubernetes.io~empty-dir/later")
	assert.NoDirExists(t, later)

	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "debug", VolumeMounts: []v1.VolumeMount{{Name: "later", MountPath: "/later"}},
	}}}
	got, err = m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Len(t, got, 2)
	assert.Contains(t, got, "later")
	assert.DirExists(t, later)
}

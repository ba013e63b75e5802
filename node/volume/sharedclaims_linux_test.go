package volume_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// driverVolumes has a claim for each persistent volume, of the same name.
type driverVolumes map[string]v1.PersistentVolumeSource

func (d driverVolumes) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if _, ok := d[name]; !ok {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
	}
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID(name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	return claim, nil
}

func (d driverVolumes) UpdateStatus(_ context.Context,
	old, _ *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return old, volume.ErrUnsupported
}

func (d driverVolumes) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: d[name],
		ClaimRef: &v1.ObjectReference{UID: types.UID(name)}}}
	pv.Name = name
	return pv, nil
}

// managerOf returns a manager with a plugin for persistent volumes.
func managerOf(t *testing.T, p volume.PersistentPlugin) *volume.Reconciler {
	t.Helper()
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{p}})
	require.NoError(t, err)
	return m
}

// A plugin of one's own can add a type of persistent volumes to those of the default plugin.
func TestSharedVolumesBehindClaims(t *testing.T) {
	forEachPublication(t, func(t *testing.T, bind bool) {
		dir, pods, disk := t.TempDir(), t.TempDir(), t.TempDir()
		volumes := driverVolumes{
			"csi":   {CSI: &v1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "disk-1"}},
			"local": {Local: &v1.LocalVolumeSource{Path: disk}},
			"nfs":   {NFS: &v1.NFSVolumeSource{}},
		}
		agent := func(volumes driverVolumes) *volume.Reconciler {
			m, err := volume.New(volume.Options{Sources: volume.Sources{Claims: volumes},
				Persistent: []volume.PersistentPlugin{&shared{dir: dir, bind: bind}}})
			require.NoError(t, err)
			return m
		}
		pod := func(name string, claims ...string) *v1.Pod {
			p := testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID("uid-"+name)),
				testpod.Containers("main"))
			for _, claim := range claims {
				testpod.Volumes(v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
				}})(p)
			}
			return p
		}
		web, db := pod("web", "csi", "local"), pod("db", "csi")
		for _, api := range []driverVolumes{volumes, nil} { // the second time the API server has nothing
			m := agent(api)
			ready, err := m.SetUp(t.Context(), web, filepath.Join(pods, "web"))
			require.NoError(t, err)
			assert.Equal(t, disk, ready["local"].HostPath)
			require.NoError(t, os.WriteFile(filepath.Join(ready["csi"].HostPath, "file"), nil, 0o600))
			ready, err = m.SetUp(t.Context(), db, filepath.Join(pods, "db"))
			require.NoError(t, err)
			assert.FileExists(t, filepath.Join(ready["csi"].HostPath, "file"))
		}
		m := agent(volumes)
		_, err := m.SetUp(t.Context(), pod("other", "nfs"), filepath.Join(pods, "other"))
		require.ErrorIs(t, err, volume.ErrUnsupported)
		for _, name := range []string{"web", "other", "db"} {
			require.NoError(t, m.Remove(t.Context(), kruntime.PodRef{UID: types.UID("uid-" + name)},
				filepath.Join(pods, name)))
		}
		assertEmptyDir(t, dir)
		assertEmptyDir(t, pods)
		assert.Empty(t, append(mounts(t, pods), mounts(t, dir)...))
	})
}

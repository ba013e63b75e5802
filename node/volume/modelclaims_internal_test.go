//go:build unix

package volume

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// claimState is how far a claim is.
type claimState string

const (
	claimFails    claimState = "its request fails"
	claimPending  claimState = "pending"
	claimNoVolume claimState = "its volume does not exist"
	claimBound    claimState = "bound"
)

func (m *model) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	state, ok := m.claims[name]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
	case state == claimFails:
		return nil, apierrors.NewServiceUnavailable("the API server is away")
	}
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID(name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	if state == claimPending {
		claim.Status.Phase = v1.ClaimPending
	}
	return claim, nil
}

func (m *model) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if m.claims[name] == claimNoVolume {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
	}
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.ClaimRef = name, &v1.ObjectReference{UID: types.UID(name)}
	if path := filepath.Join(m.disks, name); name == "local" {
		pv.Spec.Local = &v1.LocalVolumeSource{Path: path}
	} else {
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: path, Type: ptr.To(v1.HostPathDirectory)}
	}
	return pv, nil
}

// subPath is the start of a container with sub-paths of all volumes that are ready, in which the
// agent may be killed.
func (m *model) subPath(name, path string) {
	for i, v := range m.desired[name].Spec.Volumes {
		volume, ok := m.volumes[name][v.Name]
		if !ok {
			continue
		}
		if claim := v.PersistentVolumeClaim; claim != nil && m.away[claim.ClaimName] {
			continue
		}
		path, content := path, ""
		if volume.ReadOnly { // a file, which exists
			keys := slices.Sorted(maps.Keys(m.ready[name][v.Name]))
			if len(keys) == 0 {
				continue
			}
			path, content = keys[0], m.ready[name][v.Name][keys[0]]
		}
		req := kruntime.SubPath{Pod: kruntime.RefOf(m.desired[name]), Container: "main", Index: i, VolumeName: v.Name,
			Volume: volume, Path: path, Dir: m.dir(name)}
		at, err := m.manager.SubPath(m.t.Context(), req)
		if m.kill < 0 {
			assert.ErrorIs(m.t, err, errKilled)
			m.restart()
			at, err = m.manager.SubPath(m.t.Context(), req)
		}
		if !assert.NoError(m.t, err) {
			return
		}
		if volume.ReadOnly {
			assert.Equal(m.t, content, contentOfFile(m.t, at))
		} else {
			m.isMade(volume.HostPath, path, at)
		}
		m.subPaths[name][at] = content
	}
}

// isMade checks that a sub-path is at a place, and that it and all directories above it have the mode
// of the volume.
func (m *model) isMade(volume, path, at string) {
	want, err := os.Stat(volume)
	require.NoError(m.t, err)
	for dir := path; dir != "."; dir = filepath.Dir(dir) {
		have, err := os.Stat(filepath.Join(volume, dir))
		require.NoError(m.t, err)
		if goruntime.GOOS == "linux" { // elsewhere the umask of the process applies
			assert.Equal(m.t, want.Mode().Perm(), have.Mode().Perm(), dir)
		}
	}
	have, err := os.Stat(at)
	require.NoError(m.t, err)
	is, err := os.Stat(filepath.Join(volume, path))
	require.NoError(m.t, err)
	assert.True(m.t, os.SameFile(is, have), "%s is not mounted at %s", path, at)
}

func contentOfFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

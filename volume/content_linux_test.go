package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	kruntime "github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// A sub-path shows the files of the time when it was mounted, until it is mounted again.
func TestSubPathKeepsOldContent(t *testing.T) {
	needsMount(t)
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
	p := pod(configMapVolume("conf", "conf", false))
	cleanUp(t, m, p, dir)
	setUp := func() string {
		ready, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		sub, err := m.SubPath(t.Context(), kruntime.SubPath{
			Pod: kruntime.RefOf(p), Container: "main", VolumeName: "conf", Volume: ready["conf"], Path: "a", Dir: dir,
		})
		require.NoError(t, err)
		return sub
	}
	sub := setUp()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "2"}}
	_, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	read := func() string {
		data, err := os.ReadFile(sub)
		require.NoError(t, err)
		return string(data)
	}
	assert.Equal(t, "1", read())
	assert.Equal(t, sub, setUp(), "for the next instance of the container")
	assert.Equal(t, "2", read())
}

// Secrets and tokens are not on a disk.
func TestSecretsAreInMemory(t *testing.T) {
	needsMount(t)
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"password": []byte("p")}}
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
	p := pod(configMapVolume("conf", "conf", false), secretVolume("db", "db"))
	cleanUp(t, m, p, dir)
	for range 2 {
		ready, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		assert.Equal(t, []string{ready["db"].HostPath}, mounts(t, dir))
		info, err := os.Stat(ready["db"].HostPath)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o777)|os.ModeSticky|os.ModeDir, info.Mode(), "as kubelet's")
	}
	require.NoError(t, m.TearDown(t.Context(), kruntime.RefOf(p), dir))
	assert.Empty(t, mounts(t, dir))
}

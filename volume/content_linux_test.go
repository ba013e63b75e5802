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

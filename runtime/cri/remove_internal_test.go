package cri

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// The runtime chooses the path of a log. It must not choose what the agent removes.
func TestOnlyLogsOfTheContainerAreRemoved(t *testing.T) {
	dir := t.TempDir()
	labels := map[string]string{
		crimeta.LabelPodUID: "u1", crimeta.LabelPodName: "web", crimeta.LabelPodNamespace: "default",
		crimeta.LabelContainerName: "a",
	}
	for path, own := range map[string]bool{
		"logs/default_web_u1/a/0.log":        true,
		"logs/default_web_u1/a/12.log":       true,
		"logs/default_web_u1/b/0.log":        false,
		"logs/default_db_u2/a/0.log":         false,
		"logs/default_web_u1/a/keep":         false,
		"logs/default_web_u1/a/x.log":        false,
		"logs/default_web_u1/../etc/a/0.log": false,
		"logs/default_web_u1/a/deeper/0.log": false,
		"logs/more/default_web_u1/a/0.log":   true,
		"elsewhere/default_web_u1/a/0.log":   true,
		"etc/passwd":                         false,
	} {
		full := dir + "/" + path
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "logs/default_web_u1"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		for _, name := range []string{full, full + ".gz"} {
			require.NoError(t, os.WriteFile(name, nil, 0o600))
		}
		rt := New(nil, nil, Options{})
		require.NoError(t, rt.removeLogs(&criv1.ContainerStatus{LogPath: full, Labels: labels}))
		for _, name := range []string{full, full + ".gz"} {
			if own {
				assert.NoFileExists(t, name)
			} else {
				assert.FileExists(t, name)
			}
		}
	}
	victim := filepath.Join(dir, "etc/a/0.log")
	require.NoError(t, os.MkdirAll(filepath.Dir(victim), 0o755))
	require.NoError(t, os.WriteFile(victim, nil, 0o600))
	lie := maps.Clone(labels)
	lie[crimeta.LabelPodUID] = "/../../etc"
	require.NoError(t, New(nil, nil, Options{}).removeLogs(&criv1.ContainerStatus{LogPath: victim, Labels: lie}))
	assert.FileExists(t, victim)
	// A link in the place of a directory above a log leads nowhere.
	secret := filepath.Join(dir, "elsewhere", "0.log")
	require.NoError(t, os.WriteFile(secret, nil, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "logs/default_web_u1/linked")))
	linked := maps.Clone(labels)
	linked[crimeta.LabelContainerName] = "linked"
	err := New(nil, nil, Options{}).removeLogs(&criv1.ContainerStatus{
		LogPath: filepath.Join(dir, "logs/default_web_u1/linked/0.log"), Labels: linked,
	})
	require.ErrorContains(t, err, "path escapes")
	assert.FileExists(t, secret)
	log := filepath.Join(dir, "logs/default_web_u1/a/0.log")
	require.NoError(t, os.WriteFile(log, nil, 0o600))
	require.NoError(t, New(nil, nil, Options{}).removeLogs(&criv1.ContainerStatus{LogPath: log}))
	assert.FileExists(t, log, "without labels")
	require.NoError(t, New(nil, nil, Options{}).removeLogs(&criv1.ContainerStatus{LogPath: log, Labels: labels}))
	assert.NoFileExists(t, log)
}

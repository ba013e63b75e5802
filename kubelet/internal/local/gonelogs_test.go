package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestLoggedInstances(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/0.log", "a/9.log", "a/10.log", "a/10.log.20300101-000000", "a/x.log",
		"b/other", "stranger/0.log"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", RestartCount: 10,
		State:                v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "t://ten"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "t://nine"}},
	}}
	status := loggedInstances(pod, dir)
	var logs []string
	for _, c := range status.Containers {
		logs = append(logs, c.LogPath)
	}
	assert.Equal(t, []string{filepath.Join(dir, "a/10.log"), filepath.Join(dir, "a/9.log"),
		filepath.Join(dir, "a/0.log")}, logs)
	for i, id := range []string{"t://ten", "t://nine", "log://a/0"} {
		assert.Equal(t, id, status.Containers[i].ID.String())
	}
	assert.Equal(t, int32(10), status.Newest("a").RestartCount)
}

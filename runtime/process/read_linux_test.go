package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Without a server, the records say what runs and how the others have ended.
func TestReadPods(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	ended := p.run(shell("ended", "exit 7"))
	n.exited(ended)
	runs := p.run(shell("runs", "sleep 1000"))
	made, err := p.create(shell("made", "true"))
	require.NoError(t, err)
	n.stop()
	defer n.start() // to remove the containers

	pods, err := ReadPods(n.opts.Dir)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, "default/pod-1", pods[0].PodRef.Namespace+"/"+pods[0].Name)
	assert.True(t, pods[0].Running())
	states := map[string]runtime.ContainerState{}
	for _, c := range pods[0].Containers {
		states[c.ID.ID] = c.State
		assert.Equal(t, "host", c.Image)
	}
	assert.Equal(t, map[string]runtime.ContainerState{ended: runtime.ContainerExited, runs: runtime.ContainerRunning,
		made: runtime.ContainerCreated}, states)
	oldest := pods[0].Containers[2]
	assert.Equal(t, int32(7), oldest.ExitCode)
	assert.Equal(t, "Error", oldest.Reason)
	assert.FileExists(t, oldest.LogPath)
	_, err = ReadPods(t.TempDir())
	require.Error(t, err)
}

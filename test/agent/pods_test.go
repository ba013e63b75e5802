package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/server"
)

var _ server.Agent = (*kubeletkit.Agent)(nil)

func TestContainersOfAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, t.TempDir(), fake.New(fake.Options{}))
		defer n.stop(t)
		n.source.Set(makePod("web"))
		pod := n.after(time.Second)["web"]
		seen, ok := n.RuntimeStatus(pod.UID)
		require.True(t, ok)
		require.Len(t, seen.Containers, 1)
		assert.Equal(t, runtime.ContainerRunning, seen.Containers[0].State)
		_, err := n.Exec(t.Context(), seen.Containers[0].ID, []string{"true"}, 0)
		require.NoError(t, err)
		_, ok = n.RuntimeStatus("unknown")
		assert.False(t, ok)
		one, ok := n.Pod(pod.UID)
		require.True(t, ok)
		assert.Equal(t, pod, one)
		_, ok = n.Pod("unknown")
		assert.False(t, ok)
	})
}

// An agent that has no mirror pods translates nothing.
func TestTranslateUID(t *testing.T) {
	opts := kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{})}
	agent, err := kubeletkit.New(opts)
	require.NoError(t, err)
	assert.EqualValues(t, "mirror", agent.TranslateUID("mirror"))
	opts.API.TranslateUID = func(uid types.UID) types.UID { return "static of " + uid }
	agent, err = kubeletkit.New(opts)
	require.NoError(t, err)
	assert.EqualValues(t, "static of mirror", agent.TranslateUID("mirror"))
}

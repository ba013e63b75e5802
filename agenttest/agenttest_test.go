package agenttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	taps, added := 0, false
	opts := agenttest.Options{
		Runtime: fake.Options{Behavior: func(fake.Container) fake.Behavior { return fake.Exits(time.Hour, 3) }},
		Configure: func(n *agenttest.Node, o *kubeletkit.Options) {
			assert.Nil(t, n.Agent)
			o.NodeName = "edge"
			o.Override.PLEG = kubeletkit.Wrap(func(g pleg.Generator) pleg.Generator {
				return pleg.Tap(g, func(pleg.PodEvents) { taps++ })
			})
		},
		BeforeRun: func(t *testing.T, n *agenttest.Node) {
			require.NoError(t, n.Add("component", func(context.Context) error { added = true; return nil }))
		},
	}
	var node *agenttest.Node
	agenttest.Run(t, opts, func(t *testing.T, n *agenttest.Node) {
		node = n
		pod := fake.Pods(1, 1)[0]
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		n.Source.Set(pod)
		_, err := n.Sink.UntilPhase(t.Context(), pod.UID, v1.PodRunning)
		require.NoError(t, err)
		began := time.Now()
		n.Sleep(59 * time.Minute)
		assert.Equal(t, v1.PodRunning, n.Pods()[0].Status.Phase)
		n.Sleep(2 * time.Minute)
		assert.Equal(t, v1.PodFailed, n.Pods()[0].Status.Phase)
		assert.InDelta(t, 61*time.Minute, time.Since(began), float64(time.Second))
		assert.NotZero(t, taps)
		assert.True(t, added)
	})
	assert.ErrorContains(t, node.Run(t.Context()), "already", "the agent has run, and is stopped")
}

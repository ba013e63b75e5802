package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
)

// A pod that was bound to the node without the scheduler is refused if it needs a feature that
// the node object does not declare.
func TestPodOfAMissingFeature(t *testing.T) {
	restartsAll := func(name string) *v1.Pod {
		pod := bound(name)
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		c := &pod.Spec.Containers[0]
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		return pod
	}
	onNode(t, func(r *rig) {
		r.api.Create(restartsAll("undeclared"))
		r.after(time.Minute)
		st := r.api.Get("default", "undeclared").Status
		assert.Equal(t, v1.PodFailed, st.Phase)
		assert.Equal(t, "PodFeatureUnsupported", st.Reason)
		assert.Contains(t, st.Message, "RestartAllContainersOnContainerExits")

		r.stop()
		r.change = func(c *Config, _ *kubeletkit.Options) {
			c.Node.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
		}
		r.start()
		r.api.Create(restartsAll("declared"))
		r.after(time.Minute)
		require.Equal(t, v1.PodRunning, r.api.Get("default", "declared").Status.Phase)
		object := r.api.Object("nodes", "", "node").(*v1.Node)
		assert.Equal(t, []string{"RestartAllContainersOnContainerExits"}, object.Status.DeclaredFeatures)
	})
}

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime"
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
			Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
				Values: []int32{42}},
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
			c.Node.DeclaredFeatures = func() []string { return []string{"RestartAllContainersOnContainerExits"} }
		}
		r.start()
		r.api.Create(restartsAll("declared"))
		r.after(time.Minute)
		require.Equal(t, v1.PodRunning, r.api.Get("default", "declared").Status.Phase)
		object := r.api.Object("nodes", "", "node").(*v1.Node)
		assert.Equal(t, []string{"RestartAllContainersOnContainerExits"}, object.Status.DeclaredFeatures)
	})
}

// An update that needs a feature that the node does not declare has kubelet's event.
func TestUpdateThatNeedsAMissingFeature(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		var events []string
		r.change = func(_ *Config, o *kubeletkit.Options) {
			o.Observe.EveryEvent = func(e runtime.Event) {
				if strings.HasPrefix(e.Reason, "FailedNode") {
					events = append(events, e.Pod.Name+" "+e.Reason+": "+e.Message)
				}
			}
		}
		r.start()
		pod := bound("web")
		pod.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "image",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
		r.api.Create(pod)
		r.after(time.Minute)
		r.api.Update("default", "web", func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" })
		r.after(time.Second)
		require.Empty(r, events)
		r.api.Update("default", "web", func(p *v1.Pod) {
			p.Spec.InitContainers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		})
		r.after(time.Minute)
		assert.Equal(r, []string{"web FailedNodeDeclaredFeaturesCheck: Pod requires node features that are not " +
			"available: InPlacePodVerticalScalingInitContainers"}, events)
	})
}

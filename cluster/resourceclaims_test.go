package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/node/dra"
)

// gpus is a driver whose claims have one device each.
type gpus struct{ calls []string }

func (g *gpus) Prepare(_ context.Context, claims []dra.Claim) (map[types.UID]dra.Prepared, error) {
	out := map[types.UID]dra.Prepared{}
	for _, c := range claims {
		g.calls = append(g.calls, "prepare "+c.Name)
		out[c.UID] = dra.Prepared{Devices: []dra.Device{{Pool: "node", Name: "gpu-0",
			CDIDevices: []string{"example.com/gpu=0"}}}}
	}
	return out, nil
}

func (g *gpus) Unprepare(_ context.Context, claims []dra.Claim) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		g.calls = append(g.calls, "unprepare "+c.Name)
		out[c.UID] = nil
	}
	return out, nil
}

// claimingGPU returns a pod whose container uses a claim.
func claimingGPU(name string) *v1.Pod {
	pod := bound(name)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	return pod
}

// A pod with a claim is refused, unless a component prepares claims: then it starts when the claim is reserved for it,
// and its object goes when the claim is unprepared.
func TestPodWithAClaim(t *testing.T) {
	onNode(t, func(r *rig) {
		r.api.Create(claimingGPU("refused"))
		r.after(time.Minute)
		assert.Equal(t, "PodFeatureUnsupported", r.api.Get("default", "refused").Status.Reason)

		r.stop()
		driver := &gpus{}
		r.change = func(c *Config, _ *kubeletkit.Options) { c.ResourceClaims = true }
		r.join = func(n *Node, o *kubeletkit.Options) {
			m, err := dra.New(r.root, n.ResourceClaims(), dra.Options{Slices: n.ResourceClaims()})
			require.NoError(t, err)
			m.Add("gpu.example.com", driver).SetConnected(true)
			o.Join = append(o.Join, m)
		}
		r.start()
		r.api.Create(claimingGPU("web"))
		r.after(time.Minute)
		assert.Equal(t, v1.PodPending, r.api.Get("default", "web").Status.Phase)
		assert.Empty(t, driver.calls)
		pod := r.api.Get("default", "web")
		assert.Contains(t, pod.Status.ContainerStatuses[0].State.Waiting.Message,
			"prepare dynamic resources: fetch ResourceClaim gpu")

		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: "gpu", UID: "claim"}}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "gpu.example.com"}}}}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods",
			Name: "web", UID: pod.UID}}
		r.api.Put("resourceclaims", claim)
		r.after(5 * time.Minute)
		require.Equal(t, v1.PodRunning, r.api.Get("default", "web").Status.Phase)
		assert.Equal(t, []string{"prepare gpu"}, driver.calls)

		r.api.Delete("default", "web", new(int64(1)))
		r.after(time.Minute)
		assert.Equal(t, []string{"prepare gpu", "unprepare gpu"}, driver.calls)
		assert.Nil(t, r.api.Get("default", "web"))
	})
}

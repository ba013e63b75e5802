package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// On a node of a cluster, a static pod is not evicted for its storage. A pod of the API server is.
func TestStaticPodsAreNotEvictedForTheirStorage(t *testing.T) {
	limited := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{
			v1.ResourceEphemeralStorage: resource.MustParse("4Mi")}
	}
	onNode(t, func(r *rig) {
		r.static.Set(testpod.With(bound("static"), testpod.UID("static"), limited))
		r.api.Create(testpod.With(bound("web"), limited))
		r.after(time.Minute)
		r.rt.SetUsage(fake.Target{}, fake.Usage{Disk: 5 << 20})
		r.after(time.Minute)
		assert.Equal(t, "Evicted", r.api.Get("default", "web").Status.Reason)
		assert.Equal(t, v1.PodRunning, r.api.Get("default", "static").Status.Phase)
	})
}

package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// The swap of a container is that of its cgroup. What is left of it is known if it has a limit.
func TestSwapOfContainers(t *testing.T) {
	now := time.Unix(1000, 0)
	for limit, left := range map[string]*uint64{"max": nil, "0": ptr.To[uint64](0), "8192": ptr.To[uint64](4096),
		"": nil} {
		u := readV2(func(_, name string) string {
			return map[string]string{"memory.swap.current": "4096\n", "memory.swap.max": limit + "\n"}[name]
		})
		assert.Equal(t, &statsv1alpha1.SwapStats{Time: metav1.NewTime(now), SwapUsageBytes: ptr.To[uint64](4096),
			SwapAvailableBytes: left}, u.swap(now), limit)
	}
	u := readV2(func(string, string) string { return "" })
	assert.Nil(t, u.swap(now), "the kernel has no swap")
}

// The swap of a pod is the sum of that of its containers.
func TestSwapOfPods(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	container := func(used, left *uint64) statsv1alpha1.ContainerStats {
		return statsv1alpha1.ContainerStats{Swap: &statsv1alpha1.SwapStats{Time: at, SwapUsageBytes: used,
			SwapAvailableBytes: left}}
	}
	n := ptr.To[uint64]
	assert.Nil(t, sumSwap(nil))
	assert.Nil(t, sumSwap([]statsv1alpha1.ContainerStats{{}, container(nil, nil)}))
	assert.Equal(t, &statsv1alpha1.SwapStats{Time: at, SwapUsageBytes: n(3)},
		sumSwap([]statsv1alpha1.ContainerStats{container(n(1), nil), {}, container(n(2), nil)}))
	assert.Equal(t, &statsv1alpha1.SwapStats{Time: at, SwapUsageBytes: n(3), SwapAvailableBytes: n(7)},
		sumSwap([]statsv1alpha1.ContainerStats{container(n(1), n(3)), container(n(2), n(4))}))
}

package kubelet

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// As with kubelet 1.37, a rate of 0 is a default of 5 for requests, and no limit for events.
func TestBudgets(t *testing.T) {
	s := &config.Settings{}
	s.KubeAPIQPS, s.KubeAPIBurst, s.EventRecordQPS, s.EventBurst = ptr.To[int32](0), 20, ptr.To[int32](0), 30
	api, events := cluster.Budget{QPS: 5, Burst: 20}, cluster.Budget{QPS: -1, Burst: 30}
	assert.Equal(t, cluster.Budgets{Status: api, Objects: api, Events: events}, budgets(s))

	*s.KubeAPIQPS, *s.EventRecordQPS = 7, 8
	api.QPS, events.QPS = 7, 8
	assert.Equal(t, cluster.Budgets{Status: api, Objects: api, Events: events}, budgets(s))
}

// Limits of pods are held by their cgroups, which need the settings, the component and the permission.
func TestLimitsOfPods(t *testing.T) {
	const endpoint, kubeconfig = "--container-runtime-endpoint=/run/cri.sock", "--kubeconfig=/k"
	limits := func(without []Capability, args ...string) bool {
		s, err := program.Parse(args)
		require.NoError(t, err)
		can, err := (&Kubelet{settings: s, opts: Options{Without: without}}).limitsPods()
		require.NoError(t, err)
		return can
	}
	if os.Geteuid() != 0 {
		assert.False(t, limits(nil, kubeconfig, endpoint))
	}
	assert.False(t, limits(nil, kubeconfig, endpoint, "--cgroups-per-qos=false"))
	assert.False(t, limits([]Capability{Cgroups}, kubeconfig, endpoint))
	assert.False(t, limits(nil, kubeconfig, "--container-runtime-endpoint=embedded"), "the embedded runtime has not said so")
}

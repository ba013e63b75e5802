package kubelet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// A rate of 0 is a default of 5, as with kubelet, and not the absence of a limit.
func TestBudgets(t *testing.T) {
	s := &config.Settings{}
	s.KubeAPIQPS, s.KubeAPIBurst, s.EventRecordQPS, s.EventBurst = ptr.To[int32](0), 20, ptr.To[int32](0), 30
	api, events := cluster.Budget{QPS: 5, Burst: 20}, cluster.Budget{QPS: 5, Burst: 30}
	assert.Equal(t, cluster.Budgets{Status: api, Objects: api, Events: events}, budgets(s))

	*s.KubeAPIQPS, *s.EventRecordQPS = 7, 8
	api.QPS, events.QPS = 7, 8
	assert.Equal(t, cluster.Budgets{Status: api, Objects: api, Events: events}, budgets(s))
}

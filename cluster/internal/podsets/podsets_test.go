package podsets_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeletkit/kubeletkit/cluster/internal/podsets"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

func TestSets(t *testing.T) {
	t.Parallel()
	pod := func(uid types.UID, phase v1.PodPhase) *v1.Pod {
		return testpod.New(string(uid), testpod.UID(uid), testpod.Phase(phase))
	}
	pods := []*v1.Pod{pod("new", ""), pod("running", v1.PodRunning), pod("succeeded", v1.PodSucceeded),
		pod("failed", v1.PodFailed)}
	removed := []*v1.Pod{pod("removed", v1.PodRunning)}
	assert.Equal(t, sets.New[types.UID]("new", "running"), podsets.Active(pods))
	assert.Equal(t, sets.New[types.UID]("succeeded", "failed", "removed"), podsets.Ended(pods, removed))
	assert.Empty(t, podsets.Ended(pods[:2], nil))
}

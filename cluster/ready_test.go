package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// A healthy node is Ready at most one second after its agent has started.
func TestReadyWithinASecond(t *testing.T) {
	for name, before := range map[string]func(r *rig){
		"new": func(r *rig) { r.api = apitest.New() },
		"node that was away": func(r *rig) {
			object := r.api.Object("nodes", "", "node").(*v1.Node)
			i := slices.IndexFunc(object.Status.Conditions, isReady)
			require.GreaterOrEqual(r, i, 0)
			object.Status.Conditions[i].Status = v1.ConditionUnknown // as the node controller does
			r.api.Put("nodes", object)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				r.after(time.Minute)
				r.stop()
				before(r)
				ready := func() bool {
					object, ok := r.api.Object("nodes", "", "node").(*v1.Node)
					return ok && slices.ContainsFunc(object.Status.Conditions, func(c v1.NodeCondition) bool {
						return isReady(c) && c.Status == v1.ConditionTrue
					})
				}
				require.False(r, ready())
				began := time.Now()
				r.start()
				for !ready() && time.Since(began) < time.Minute {
					r.after(10 * time.Millisecond)
				}
				r.Logf("Ready after %v", time.Since(began))
				assert.True(r, ready())
				assert.LessOrEqual(r, time.Since(began), time.Second)
			})
		})
	}
}

func isReady(c v1.NodeCondition) bool { return c.Type == v1.NodeReady }

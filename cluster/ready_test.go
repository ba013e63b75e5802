package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
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

// A healthy node stays Ready when its agent is restarted, although the checks of the runtime take
// their time.
func TestReadyAcrossARestart(t *testing.T) {
	for name, csi := range map[string]bool{"without CSI": false, "with CSI": true} {
		t.Run(name, func(t *testing.T) { onNode(t, func(r *rig) { testReadyAcrossARestart(r, csi) }) })
	}
}

func testReadyAcrossARestart(r *rig, csi bool) {
	r.stop()
	r.change = func(c *Config, _ *kubeletkit.Options) { c.CSI = csi }
	r.start()
	r.after(time.Minute)
	r.stop()
	r.rt.Inject(fake.Fault{Call: "Status", Delay: 50 * time.Millisecond})
	r.rt.Inject(fake.Fault{Call: "ListPodSandbox", Delay: 50 * time.Millisecond})
	r.api.Requests()
	began := time.Now()
	r.start()
	var versions []*v1.Node
	for ; len(versions) == 0 || time.Since(began) < 10*time.Second; r.after(time.Millisecond) {
		object := r.api.Object("nodes", "", "node").(*v1.Node)
		if len(versions) == 0 || versions[len(versions)-1].ResourceVersion != object.ResourceVersion {
			versions = append(versions, object)
		}
	}
	assert.Contains(r, r.api.Requests(), "patch nodes/node status")
	for _, object := range versions {
		i := slices.IndexFunc(object.Status.Conditions, isReady)
		require.GreaterOrEqual(r, i, 0)
		assert.Equal(r, v1.ConditionTrue, object.Status.Conditions[i].Status, "%v after the start: %s",
			object.Status.Conditions[i].LastTransitionTime.Sub(began), object.Status.Conditions[i].Message)
	}
}

// A node whose runtime does not work when its agent is restarted is not Ready soon.
func TestNotReadyAcrossARestart(t *testing.T) {
	onNode(t, func(r *rig) {
		r.after(time.Minute)
		r.stop()
		r.rt.SetCondition("RuntimeReady", false, "Broken", "for a test")
		r.start()
		r.after(2 * time.Second)
		object := r.api.Object("nodes", "", "node").(*v1.Node)
		i := slices.IndexFunc(object.Status.Conditions, isReady)
		require.GreaterOrEqual(r, i, 0)
		assert.Equal(r, v1.ConditionFalse, object.Status.Conditions[i].Status)
	})
}

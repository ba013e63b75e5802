package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A runtime that does not answer for a short time, as during its restart, leaves the node ready. One
// that answers that it is not ready does not.
func TestReadyWithoutAnswersOfTheRuntime(t *testing.T) {
	for name, fault := range map[string]fake.Fault{
		"away":  {Err: runtime.ErrUnavailable},
		"hangs": {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				ready := func() v1.ConditionStatus {
					object := r.api.Object("nodes", "", "node").(*v1.Node)
					i := slices.IndexFunc(object.Status.Conditions, isReady)
					require.GreaterOrEqual(r, i, 0)
					return object.Status.Conditions[i].Status
				}
				r.after(time.Minute)
				require.Equal(r, v1.ConditionTrue, ready())

				back := r.rt.Inject(fault)
				for range 20 {
					r.after(time.Second)
					assert.Equal(r, v1.ConditionTrue, ready())
				}
				require.Error(r, r.agent.RuntimeReady())
				back()
				r.after(time.Minute)
				require.NoError(r, r.agent.RuntimeReady())
				assert.Equal(r, v1.ConditionTrue, ready())

				back = r.rt.Inject(fault)
				r.after(45 * time.Second)
				assert.Equal(r, v1.ConditionFalse, ready())
				back()
				r.after(time.Minute)
				assert.Equal(r, v1.ConditionTrue, ready())

				r.rt.SetCondition("RuntimeReady", false, "Broken", "for a test")
				r.after(8 * time.Second) // a check, and a look at it
				assert.Equal(r, v1.ConditionFalse, ready())
				r.rt.SetCondition("RuntimeReady", true, "", "")
				r.stop()
				r.change = func(c *Config, _ *kubeletkit.Options) { c.RuntimeTimeout = -1 }
				r.start()
				r.after(time.Minute)
				require.Equal(r, v1.ConditionTrue, ready())
				back = r.rt.Inject(fault)
				r.after(18 * time.Second) // a check of 10 s
				assert.Equal(r, v1.ConditionFalse, ready())
				back()
			})
		})
	}
}

package cluster

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	shutdownfake "github.com/kubeletkit/kubeletkit/node/shutdown/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// At a shutdown the API server has the node as not ready before a pod has ended, and the ends of the pods before
// the machine goes on.
func TestShutdownOfTheMachine(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		machine := shutdownfake.NewLogind("")
		r.change = func(_ *Config, opts *kubeletkit.Options) {
			manager, err := shutdown.New(shutdown.Classes(5*time.Second, 2*time.Second), machine,
				shutdown.Options{DropInDir: r.root, StateDir: r.root})
			require.NoError(r, err)
			opts.Join = append(opts.Join, manager)
		}
		r.rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: time.Second})
		r.start()
		r.api.Create(bound("web"))
		r.after(time.Minute)
		require.Len(r, r.rt.Running(fake.Target{Pod: "web"}), 1)

		ready := func() v1.NodeCondition {
			object := r.api.Object("nodes", "", "node").(*v1.Node)
			return object.Status.Conditions[slices.IndexFunc(object.Status.Conditions, isReady)]
		}
		require.Equal(r, v1.ConditionTrue, ready().Status)
		time.AfterFunc(100*time.Millisecond, func() {
			assert.Equal(r, v1.ConditionFalse, ready().Status)
			assert.Equal(r, "node is shutting down", ready().Message)
			assert.Len(r, r.rt.Running(fake.Target{Pod: "web"}), 1)
		})
		assert.True(r, machine.Shutdown())
		r.after(10 * time.Millisecond)
		ended := r.api.Get("default", "web")
		assert.Equal(r, v1.PodFailed, ended.Status.Phase)
		assert.Equal(r, "Terminated", ended.Status.Reason)

		machine.Cancel()
		r.after(time.Second)
		assert.Equal(r, v1.ConditionTrue, ready().Status)
	})
}

// short is a component of a node that is short of something.
type short struct {
	node  lifecycle.Node
	under atomic.Pointer[v1.NodeConditionType]
}

func (*short) Name() string { return "short" }

func (s *short) Join(node lifecycle.Node) error {
	s.node = node
	return nil
}

func (s *short) UnderPressure(c v1.NodeConditionType) bool {
	under := s.under.Load()
	return under != nil && *under == c
}

// A component that knows what the node is short of is found, and the API server has its conditions at once. Those of
// the configuration replace them.
func TestPressureOfTheNode(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		s := &short{}
		r.change = func(config *Config, opts *kubeletkit.Options) {
			opts.Join = append(opts.Join, s)
			config.Node.Conditions = append(config.Node.Conditions, func(context.Context) []v1.NodeCondition {
				return []v1.NodeCondition{{Type: v1.NodePIDPressure, Status: v1.ConditionTrue, Reason: "Own"}}
			})
		}
		r.start()
		r.after(time.Minute)
		has := func(c v1.NodeConditionType) v1.ConditionStatus {
			list := r.api.Object("nodes", "", "node").(*v1.Node).Status.Conditions
			return list[slices.IndexFunc(list, func(x v1.NodeCondition) bool { return x.Type == c })].Status
		}
		assert.Equal(r, v1.ConditionFalse, has(v1.NodeDiskPressure))
		assert.Equal(r, v1.ConditionTrue, has(v1.NodePIDPressure))
		s.under.Store(new(v1.NodeDiskPressure))
		s.node.NodeStatusChanged()
		r.after(time.Second)
		assert.Equal(r, v1.ConditionTrue, has(v1.NodeDiskPressure))
		assert.Equal(r, v1.ConditionFalse, has(v1.NodeMemoryPressure))
	})
}

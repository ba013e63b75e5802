package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// onePort gives a single port to one pod after the other. It keeps nothing: after a restart it has the holder from what
// is observed.
type onePort struct {
	node lifecycle.Node

	mu      sync.Mutex
	holder  types.UID
	waiting []types.UID
	broken  []string // what must not happen
}

func (*onePort) Name() string { return "one port" }

func (p *onePort) Join(node lifecycle.Node) error {
	p.node = node
	return nil
}

func (p *onePort) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case req.Observed.ContainersRunning() && p.holder != "" && p.holder != req.Pod.UID:
		p.broken = append(p.broken, fmt.Sprintf("%s runs with the port, which was given to %s", req.Pod.Name, p.holder))
	case p.holder == "" || p.holder == req.Pod.UID || req.Observed.ContainersRunning():
		p.holder = req.Pod.UID
	default:
		p.waiting = append(p.waiting, req.Pod.UID)
		return lifecycle.PrepareResponse{}, lifecycle.Wait("WaitingForPort", "another pod has the port")
	}
	return lifecycle.PrepareResponse{}, nil
}

func (p *onePort) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	p.mu.Lock()
	waiting := p.waiting
	if p.holder == req.Pod.UID {
		p.holder, p.waiting = "", nil
	} else {
		waiting = nil
	}
	p.mu.Unlock()
	for _, uid := range waiting {
		p.node.Sync(uid)
	}
	return nil
}

func (p *onePort) assertNothingBroken(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.Empty(t, p.broken)
}

// failing is a component that comes before the port and fails.
type failing struct{ uid types.UID }

func (failing) Name() string { return "failing" }

func (f failing) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	if req.Pod.UID == f.uid {
		return lifecycle.PrepareResponse{}, errors.New("broken")
	}
	return lifecycle.PrepareResponse{}, nil
}

// After a restart of the agent, components see the pods that run before they prepare others, in whichever order the
// sources deliver them.
func TestPodsThatRunArePreparedFirst(t *testing.T) {
	holder, waiter := makePod("web"), makePod("a-waits")
	for _, pod := range []*v1.Pod{holder, waiter} { // a checkpoint needs them
		manifest.SetDefaults(pod)
		pod.Spec.NodeName = "node"
	}
	for name, test := range map[string]struct {
		// deliver has the two sources deliver to the agent.
		deliver    func(n *node, second *podconfigfake.Source)
		checkpoint bool
		fails      types.UID
		left       bool // the holder is not desired any more
	}{
		"one source": {deliver: func(n *node, second *podconfigfake.Source) {
			second.Set()
			n.source.Set(waiter, holder)
		}},
		"the other pod first": {deliver: func(n *node, second *podconfigfake.Source) {
			second.Set(waiter)
			n.after(5 * time.Second)
			n.source.Set(holder)
		}},
		"the pod that runs first": {deliver: func(n *node, second *podconfigfake.Source) {
			n.source.Set(holder)
			n.after(5 * time.Second)
			second.Set(waiter)
		}},
		"the checkpoint": {deliver: func(*node, *podconfigfake.Source) {}, checkpoint: true},
		"a component before fails": {deliver: func(n *node, second *podconfigfake.Source) {
			n.source.Set(holder)
			second.Set(waiter)
		}, fails: holder.UID},
		"the pod that runs is to end": {deliver: func(n *node, second *podconfigfake.Source) {
			n.source.Set(testpod.With(holder, testpod.Deleted(30)))
			second.Set(waiter)
		}, left: true},
		"the pod that runs is not desired": {deliver: func(n *node, second *podconfigfake.Source) {
			n.source.Set()
			second.Set(waiter)
		}, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					rt := fake.New(fake.Options{})
					start := func(fails types.UID) (*node, *podconfigfake.Source, *onePort) {
						second, port := podconfigfake.NewSource("second"), &onePort{}
						n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
							o.Sources = append(o.Sources, podconfig.Source(second))
							o.Join = []lifecycle.Component{failing{fails}, port}
							if test.checkpoint {
								store, err := checkpoint.New(dir+"/checkpoint", checkpoint.Options{})
								require.NoError(t, err)
								o.Checkpoint = store
							}
						})
						return n, second, port
					}
					n, second, port := start("")
					n.source.Set(holder)
					n.after(time.Second)
					second.Set(waiter)
					require.Equal(t, v1.PodRunning, n.after(10 * time.Second)["web"].Status.Phase)
					port.assertNothingBroken(t)
					n.stop(t)

					n, second, port = start(test.fails)
					defer n.stop(t)
					n.after(0)
					test.deliver(n, second)
					pods := n.after(time.Minute)
					port.assertNothingBroken(t)
					if test.left {
						assert.Len(t, rt.Running(fake.Target{Pod: "a-waits"}), 1)
						return
					}
					assert.Len(t, rt.Running(fake.Target{Pod: "web"}), 1)
					require.Contains(t, pods, "a-waits")
					require.NotNil(t, pods["a-waits"].Status.ContainerStatuses[0].State.Waiting)
					assert.Equal(t, "WaitingForPort", pods["a-waits"].Status.ContainerStatuses[0].State.Waiting.Reason)
				})
			}
		})
	}
}

// hanging is a component whose Prepare hangs for one pod.
type hanging struct{ uid types.UID }

func (hanging) Name() string { return "hanging" }

func (h hanging) Prepare(ctx context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	if req.Pod.UID == h.uid {
		<-ctx.Done()
		return lifecycle.PrepareResponse{}, ctx.Err()
	}
	return lifecycle.PrepareResponse{}, nil
}

// A pod that runs and hangs, and one whose source does not deliver it, hold up others for 10 s only.
func TestPodsThatRunHoldUpOthersForALimitedTime(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			rt := fake.New(fake.Options{})
			pods := fake.Pods(2, 1)
			require.NoError(t, rt.Seed(pods[0]))
			second := podconfigfake.NewSource("second")
			n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
				o.Sources = append(o.Sources, podconfig.Source(second))
				o.Join = []lifecycle.Component{hanging{pods[0].UID}}
			})
			defer n.stop(t)
			n.source.Set(pods[1])
			if delivered {
				second.Set(pods[0])
			}
			n.after(9 * time.Second)
			assert.Empty(t, rt.Running(fake.Target{Pod: "pod-1"}))
			n.after(2 * time.Second)
			assert.Len(t, rt.Running(fake.Target{Pod: "pod-1"}), 1)
			assert.Len(t, rt.Running(fake.Target{Pod: "pod-0"}), 1)
		})
	}
}

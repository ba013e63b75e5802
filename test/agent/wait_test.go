package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// gate is a component that fails the step of that name.
type gate struct {
	step string

	mu    sync.Mutex
	err   error
	calls int
}

func (g *gate) Name() string { return "gate" }

func (g *gate) pass(step string) error {
	if step != g.step {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if g.err == nil {
		return nil
	}
	return fmt.Errorf("container of a pod: %w", g.err)
}

// set sets the error, and returns how often the step was called.
func (g *gate) set(err error) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	return g.calls
}

func (g *gate) Prepare(context.Context, lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	return lifecycle.PrepareResponse{}, g.pass("Prepare")
}

func (g *gate) EditSandbox(context.Context, *v1.Pod) (runtime.SandboxEdits, error) {
	return runtime.SandboxEdits{}, g.pass("EditSandbox")
}

func (g *gate) EditContainer(_ context.Context, _ *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	return runtime.ContainerEdits{}, g.pass("EditContainer")
}

// gatedRuntime is a runtime with the step SyncPod.
type gatedRuntime struct {
	runtime.Runtime
	gate *gate
}

func (r gatedRuntime) Unwrap() any { return r.Runtime }

func (r gatedRuntime) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	if err := r.gate.pass("SyncPod"); err != nil {
		return runtime.SyncResult{}, err
	}
	return r.Runtime.SyncPod(ctx, req)
}

// gated is a node with a gate.
type gated struct {
	*agenttest.Node
	*gate
	mu     sync.Mutex
	events []runtime.Event
	failed []string // the lines of the log about errors
}

// runGated runs a node with a pod whose step returns the error.
func runGated(t *testing.T, step string, err error, test func(t *testing.T, n *gated)) {
	g := &gated{gate: &gate{step: step, err: err}}
	agenttest.Run(t, agenttest.Options{Configure: func(n *agenttest.Node, opts *kubeletkit.Options) {
		opts.Join = append(opts.Join, g.gate)
		opts.Runtime = gatedRuntime{opts.Runtime, g.gate}
		opts.Observe.EveryEvent = func(e runtime.Event) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.events = append(g.events, e)
		}
		opts.Observe.Logger = funcr.New(func(_, args string) {
			if strings.Contains(args, `"error"=`) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.failed = append(g.failed, args)
			}
		}, funcr.Options{})
	}}, func(t *testing.T, n *agenttest.Node) {
		g.Node = n
		n.Source.Set(fake.Pods(1, 2)...)
		n.Sleep(time.Second)
		test(t, g)
	})
}

// reported returns the events with the reason.
func (g *gated) reported(reason string) (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e.Reason == reason {
			out = append(out, strings.TrimSpace(e.FieldPath+" "+e.Message))
		}
	}
	return out
}

func (g *gated) errors() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// waiting returns the states of the containers that wait.
func (g *gated) waiting() (out []string) {
	for _, c := range g.Pods()[0].Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			out = append(out, c.Name+" "+w.Reason+": "+w.Message)
		}
	}
	return out
}

// A step that answers "wait" is no failure: its containers wait with the reason and the message, there is one event,
// nothing in the log is an error, and the pod is synced again when that is requested, and not before its resync.
func TestAStepThatWaits(t *testing.T) {
	for _, step := range []string{"Prepare", "EditSandbox", "EditContainer", "SyncPod"} {
		t.Run(step, func(t *testing.T) {
			runGated(t, step, lifecycle.Wait("WaitingForPort", "port 1 is not plugged in"),
				func(t *testing.T, n *gated) {
					want := []string{"port 1 is not plugged in"}
					each := 1 // the number of calls of a sync
					if step == "EditContainer" {
						each = 2
						want = []string{"spec.containers{c0} port 1 is not plugged in",
							"spec.containers{c1} port 1 is not plugged in"}
					}
					check := func(message string) {
						assert.Equal(t, []string{"c0 WaitingForPort: " + message, "c1 WaitingForPort: " + message},
							n.waiting())
						assert.Equal(t, v1.PodPending, n.Pods()[0].Status.Phase)
					}
					check("port 1 is not plugged in")
					n.Sleep(10 * time.Minute)
					check("port 1 is not plugged in")
					assert.ElementsMatch(t, want, n.reported("WaitingForPort"), "one event")
					calls := n.set(lifecycle.Wait("WaitingForPort", "port 2 is not plugged in"))
					assert.LessOrEqual(t, calls, 14*each, "synced only by the resync")

					uid := n.Pods()[0].UID
					require.NoError(t, n.Sync(uid))
					n.Sleep(0)
					check("port 2 is not plugged in")
					assert.Len(t, n.reported("WaitingForPort"), 2*len(want), "the message has changed")

					n.set(nil)
					require.NoError(t, n.Sync(uid))
					n.Sleep(time.Second)
					assert.Empty(t, n.waiting())
					assert.Equal(t, v1.PodRunning, n.Pods()[0].Status.Phase)
					assert.Empty(t, n.errors())
					assert.Empty(t, n.reported("Failed"))
					assert.Empty(t, n.reported("FailedSync"))
					assert.Empty(t, n.reported("FailedCreatePodSandBox"))
				})
		})
	}
}

// A wait beside a failure does not hide it, and is shown.
func TestAStepThatWaitsAndFails(t *testing.T) {
	err := errors.Join(lifecycle.Wait("WaitingForPort", "port 1 is not plugged in"), errors.New("the bus is broken"))
	runGated(t, "EditContainer", err, func(t *testing.T, n *gated) {
		n.Sleep(time.Minute)
		require.NotEmpty(t, n.errors())
		assert.Contains(t, n.errors()[0], "the bus is broken")
	})
}

// The bare error of a runtime is the message of the containers, and an event.
func TestABareErrorOfARuntimeIsVisible(t *testing.T) {
	runGated(t, "SyncPod", errors.New("quota exceeded"), func(t *testing.T, n *gated) {
		const message = "container of a pod: quota exceeded"
		assert.Equal(t, []string{"c0 ContainerCreating: " + message, "c1 ContainerCreating: " + message}, n.waiting())
		assert.Contains(t, n.reported("FailedSync"), "error syncing pod: "+message)
		assert.NotEmpty(t, n.errors())
		n.set(nil)
		n.Sleep(time.Minute)
		assert.Empty(t, n.waiting())
	})
}

// The bare error of a runtime is visible also if the containers of the pod have run before.
func TestABareErrorOfARuntimeIsVisibleAtARestart(t *testing.T) {
	runGated(t, "SyncPod", nil, func(t *testing.T, n *gated) {
		n.set(errors.New("quota exceeded"))
		require.Equal(t, 1, n.Runtime.Exit(fake.Target{Container: "c0"}, 1))
		n.Sleep(time.Second)
		assert.Equal(t, []string{"c0 ContainerCreating: container of a pod: quota exceeded"}, n.waiting())
		assert.NotEmpty(t, n.reported("FailedSync"))
	})
}

// A failure of which the runtime itself has reported an event and a reason has no other one.
func TestAFailureThatARuntimeReports(t *testing.T) {
	for call, reason := range map[string]string{"RunPodSandbox": "FailedCreatePodSandBox", "CreateContainer": "Failed",
		"StartContainer": "Failed"} {
		t.Run(call, func(t *testing.T) {
			runGated(t, "SyncPod", errors.New("not yet"), func(t *testing.T, n *gated) {
				before := len(n.reported("FailedSync"))
				n.Runtime.Inject(fake.Fault{Call: call, Err: errors.New("quota exceeded")})
				n.set(nil)
				n.Sleep(30 * time.Second)
				assert.Len(t, n.reported("FailedSync"), before)
				assert.NotEmpty(t, n.reported(reason))
				for _, w := range n.waiting() {
					assert.Contains(t, w, "quota exceeded")
				}
			})
		})
	}
}

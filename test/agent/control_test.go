package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: time.Minute})
		n := startNode(t, t.TempDir(), rt)
		defer n.stop(t)
		n.source.Set(testpod.With(makePod("web"), func(p *v1.Pod) { p.Generation = 3 }), makePod("db"))
		n.after(time.Second)

		require.NoError(t,
			n.Evict("uid-web", runtime.Eviction{Reason: "Evicted", Message: "The node was low on resource: memory.",
				GracePeriod: ptr.To[int64](2)}))
		assert.Len(t, rt.Running(fake.Target{Pod: "web"}), 1, "it does not wait")
		web := n.after(3 * time.Second)["web"]
		assert.Equal(t, v1.PodFailed, web.Status.Phase)
		assert.Equal(t, "Evicted", web.Status.Reason)
		assert.Equal(t, "The node was low on resource: memory.", web.Status.Message)
		require.True(t, slices.ContainsFunc(web.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue &&
				c.Reason == "TerminationByKubelet" && c.ObservedGeneration == 3 && !c.LastTransitionTime.IsZero()
		}), "%v", web.Status.Conditions)
		assert.Empty(t, rt.Running(fake.Target{Pod: "web"}), "the grace period is the one that was given")

		assert.Equal(t, v1.PodFailed, n.after(10 * time.Minute)["web"].Status.Phase, "it stays so")
		assert.Len(t, rt.Running(fake.Target{}), 1)
		assert.ErrorIs(t, n.Evict("uid-other", runtime.Eviction{Reason: "Evicted"}), kubeletkit.ErrUnknownPod)
		assert.ErrorContains(t, n.Evict("uid-other", runtime.Eviction{Reason: "Evicted"}), "uid-other")
	})
}

// The condition of a preempted pod has another message than its status, as in kubelet.
func TestEvictForACriticalPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, t.TempDir(), fake.New(fake.Options{}))
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(time.Second)
		require.NoError(t,
			n.Evict("uid-web", runtime.Eviction{Reason: "Preempting",
				Message: "Preempted in order to admit critical pod"}))
		web := n.after(time.Minute)["web"]
		assert.Equal(t, "Preempted in order to admit critical pod", web.Status.Message)
		i := slices.IndexFunc(web.Status.Conditions,
			func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, "Pod was preempted by Kubelet to accommodate a critical pod.", web.Status.Conditions[i].Message)
	})
}

// countingSyncer counts the syncs of pods.
type countingSyncer struct {
	podworkers.Syncer
	syncs *atomic.Int32
}

func (c countingSyncer) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	status *runtime.PodStatus) (podworkers.Result, error) {
	c.syncs.Add(1)
	return c.Syncer.SyncPod(ctx, typ, pod, status)
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int32
		n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Override.PodSyncer = kubeletkit.Wrap(
				func(s podworkers.Syncer) podworkers.Syncer { return countingSyncer{s, &syncs} })
		})
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(10 * time.Second)
		before := syncs.Load()
		n.after(time.Second)
		require.Equal(t, before, syncs.Load())
		require.NoError(t, n.Sync("uid-web"))
		n.after(time.Second)
		assert.Equal(t, before+1, syncs.Load())
		assert.ErrorIs(t, n.Sync("uid-other"), kubeletkit.ErrUnknownPod)
	})
}

// forgetful hides that the pod "uid-web" has been forgotten, as it is for callers that have
// looked just before.
type (
	forgetfulPods    struct{ podmanager.Manager }
	forgetfulWorkers struct{ podworkers.Workers }
)

func (p forgetfulPods) ByUID(types.UID) (*v1.Pod, bool) { return makePod("web"), true }
func (w forgetfulWorkers) Unwrap() any                  { return w.Workers }
func (w forgetfulWorkers) State(types.UID) podworkers.State {
	return podworkers.State{Phase: podworkers.PhaseSync}
}

func TestSyncAndEvictStartNoPodThatWasForgotten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
			o.Override.PodManager = kubeletkit.Wrap(
				func(m podmanager.Manager) podmanager.Manager { return forgetfulPods{m} })
			o.Override.PodWorkers = kubeletkit.Wrap(
				func(w podworkers.Workers) podworkers.Workers { return forgetfulWorkers{w} })
		})
		defer n.stop(t)
		n.after(time.Second)
		require.NoError(t, n.Sync("uid-web"))
		require.NoError(t, n.Evict("uid-web", runtime.Eviction{Reason: "Evicted"}))
		n.after(time.Second)
		workers, _ := runtime.Optional[*podworkers.Pool](n.Parts().PodWorkers)
		assert.False(t, workers.State("uid-web").Known())
		assert.Empty(t, rt.Instances(fake.Target{}))
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, root := fake.New(fake.Options{}), t.TempDir()
		rt.Script(fake.Target{Pod: "slow"}, fake.Behavior{StopDelay: 20 * time.Second})
		n := startNode(t, root, rt)
		n.source.Set(makePod("web"), makePod("slow"))
		n.after(5 * time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, n.RuntimeReady())
		err := n.Drain(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "1 pods still run")
		assert.EqualError(t, n.RuntimeReady(), "node is shutting down", "a node of a cluster gets no more pods")
		began := time.Now()
		require.NoError(t, n.Drain(t.Context()))
		assert.Empty(t, rt.Running(fake.Target{}))
		assert.InDelta(t, 15, time.Since(began).Seconds(), 1)
		pods := n.after(0)
		assert.Equal(t, v1.PodFailed, pods["web"].Status.Phase)
		assert.Equal(t, "Terminated", pods["slow"].Status.Reason)

		n.source.Set(makePod("web"), makePod("slow"), makePod("late"))
		late := n.after(time.Minute)["late"]
		assert.Equal(t, "NodeShutdown", late.Status.Reason)
		assert.Empty(t, rt.Running(fake.Target{}), "and nothing is started again")
		n.stop(t)

		next := startNode(t, root, rt)
		defer next.stop(t)
		next.source.Set(makePod("web"))
		assert.Equal(t, v1.PodRunning, next.after(5 * time.Second)["web"].Status.Phase, "the next agent runs them")
	})
}

// A pod whose stop fails has not ended, although nothing of it seems to run, and although its source or an
// earlier agent has forgotten it.
func TestDrainOfAPodThatCannotBeStopped(t *testing.T) {
	for name, orphan := range map[string]bool{"terminating": false, "orphan": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				below := fake.New(fake.Options{})
				rt := &unstoppable{Runtime: below}
				start := func() *node {
					return startNodeWith(t, dir, below,
						func(o *kubeletkit.Options) { o.Runtime = rt })
				}
				n := start()
				n.source.Set(makePod("web"))
				n.after(5 * time.Second)
				if orphan {
					n.stop(t)
					n = start()
				}
				rt.fails.Store(true)
				n.source.Set()
				n.after(time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				assert.ErrorContains(t, n.Drain(ctx), "1 pods still run")
				rt.fails.Store(false)
				assert.NoError(t, n.Drain(t.Context()))
				n.stop(t)
			})
		})
	}
}

// unstoppable is a runtime that ends the processes of pods, and fails.
type unstoppable struct {
	runtime.Runtime
	fails atomic.Bool
}

func (u *unstoppable) KillPod(ctx context.Context, req runtime.PodKill) error {
	err := u.Runtime.KillPod(ctx, req)
	if err == nil && u.fails.Load() {
		err = errors.New("no space left on device")
	}
	return err
}

// Receivers of events may call the agent, also while an update starts a pod and a Drain
// waits for that update.
func TestAnEventMaySyncAPodDuringADrain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 10 * time.Second})
		var n *node
		next := makePod("web")
		next.UID = "uid-next"
		drained := make(chan error, 1)
		n = startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
			o.Observe.Event = func(e runtime.Event) {
				if e.Reason == "WaitingForPredecessor" {
					go func() { drained <- n.Drain(t.Context()) }()
					synctest.Wait()
					assert.NoError(t, n.Sync(next.UID))
				}
			}
		})
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(5 * time.Second)
		n.source.Set(next)
		require.NoError(t, <-drained)
		assert.Empty(t, rt.Running(fake.Target{}))
	})
}

func TestDrainEndsOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		require.NoError(t, rt.Seed(fake.Pods(1, 1)...))
		n := startNode(t, t.TempDir(), rt) // its source never delivers
		defer n.stop(t)
		n.after(10 * time.Second)
		require.NotEmpty(t, rt.Running(fake.Target{}))
		require.NoError(t, n.Drain(t.Context()))
		assert.Empty(t, rt.Running(fake.Target{}))
	})
}

// From the call of Drain on no pod is started, whatever its sources do.
func TestDrainStartsNothing(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, n *node){
		"a pod that an earlier agent ran is delivered": func(t *testing.T, n *node) {
			require.NoError(t, n.Drain(t.Context()))
		},
		"a pod is removed and added": func(t *testing.T, n *node) {
			n.source.Set(makePod("web"))
			n.after(5 * time.Second)
			require.NoError(t, n.Drain(t.Context()))
			n.source.Set()
			n.after(time.Millisecond)
		},
		"a pod is to be started anew": func(t *testing.T, n *node) {
			n.source.Set(makePod("web"))
			n.after(5 * time.Second)
			n.source.Set()
			n.after(time.Millisecond)
			n.source.Set(makePod("web"))
			n.after(time.Millisecond)
			require.NoError(t, n.Drain(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{})
				rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 10 * time.Second})
				before := startNode(t, dir, rt)
				before.source.Set(makePod("web"))
				before.after(5 * time.Second)
				before.stop(t)
				n := startNode(t, dir, rt)
				defer n.stop(t)
				n.after(time.Second)
				during(t, n)
				n.source.Set(makePod("web"))
				n.after(time.Minute)
				assert.Empty(t, rt.Running(fake.Target{}))
				starts := slices.DeleteFunc(rt.Calls(fake.Target{}),
					func(c fake.Call) bool { return c.Method != "StartContainer" })
				assert.Len(t, starts, 1, "that of the earlier agent: %v", starts)
			})
		})
	}
}

// A SyncHandler that is built from the parts starts no pod after a drain either, and keeps
// the pods in the checkpoint.
func TestDrainWithAReplacedSyncHandler(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		life := func(during func(n *node)) {
			n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
				store, err := checkpoint.New(filepath.Join(dir, "kept"), checkpoint.Options{})
				require.NoError(t, err)
				o.Checkpoint = store
				o.Override.SyncHandler = func(_ syncloop.Handler, p kubeletkit.Parts) (syncloop.Handler, error) {
					return syncloop.NewHandler(
						syncloop.HandlerDeps{Pods: p.PodManager, Workers: p.PodWorkers, Status: p.Status,
							Runtime: p.Runtime, Steps: p.Steps, Checkpoint: p.Checkpoint},
						syncloop.HandlerOptions{PodsDir: p.PodsDir, Admit: p.Admission})
				}
			})
			defer n.stop(t)
			during(n)
		}
		web := makePod("web")
		manifest.SetDefaults(web)
		web.Spec.NodeName = "node"
		life(func(n *node) {
			n.source.Set(web)
			n.after(5 * time.Second)
			n.source.Set()
			n.after(time.Millisecond)
			n.source.Set(web) // it is to be started anew
			n.after(time.Millisecond)
			require.NoError(t, n.Drain(t.Context()))
			n.source.Set(web, makePod("late"))
			assert.Equal(t, "NodeShutdown", n.after(time.Minute)["late"].Status.Reason)
			assert.Empty(t, rt.Running(fake.Target{}))
		})
		life(func(n *node) { // its source never delivers
			n.after(10 * time.Second)
			assert.Len(t, rt.Running(fake.Target{Pod: "web"}), 1)
		})
	})
}

// Pods that are refused because of a drain stay in the checkpoint.
func TestDrainLeavesTheCheckpoint(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, web := fake.New(fake.Options{}), makePod("web")
		manifest.SetDefaults(web)
		web.Spec.NodeName = "node"
		life := func(during func(n *node)) {
			n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
				store, err := checkpoint.New(filepath.Join(dir, "kept"), checkpoint.Options{})
				require.NoError(t, err)
				o.Checkpoint = store
			})
			during(n)
			n.stop(t)
		}
		life(func(n *node) {
			n.source.Set(web)
			n.after(10 * time.Second)
		})
		rt.Restart(fake.Reboot)
		life(func(n *node) {
			require.NoError(t, n.Drain(t.Context()), "before the pods are restored")
			n.after(10 * time.Second)
			n.source.Set(web)
			n.after(10 * time.Second)
			assert.Empty(t, rt.Running(fake.Target{}))
		})
		life(func(n *node) { // its source never delivers
			n.after(10 * time.Second)
			assert.Len(t, rt.Running(fake.Target{}), 1)
		})
	})
}

func TestComponentsRunAndStopWithTheAgent(t *testing.T) {
	options := func(t *testing.T) kubeletkit.Options {
		return kubeletkit.Options{NodeName: "node", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
			Host: &runtime.Host{}}
	}
	t.Run("stops", func(t *testing.T) {
		opts := options(t)
		synctest.Test(t, func(t *testing.T) {
			opts.Runtime = fake.New(fake.Options{})
			agent, err := kubeletkit.New(opts)
			require.NoError(t, err)
			var stopped bool
			require.NoError(t, agent.Add("webhook", func(ctx context.Context) error {
				<-ctx.Done()
				stopped = true
				return ctx.Err()
			}))
			require.NoError(t, agent.Add("migration", func(context.Context) error { return nil }))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, agent.Run(ctx), "a component may be through before the agent is")
			assert.True(t, stopped, "and is waited for")
			assert.ErrorIs(t, agent.Run(ctx), runtime.ErrAlreadyRunning)
			assert.ErrorIs(t, agent.Add("late", nil), runtime.ErrAlreadyRunning)
		})
	})
	t.Run("fails", func(t *testing.T) {
		opts := options(t)
		synctest.Test(t, func(t *testing.T) {
			opts.Runtime = fake.New(fake.Options{})
			agent, err := kubeletkit.New(opts)
			require.NoError(t, err)
			broken := errors.New("no route")
			require.ErrorContains(t, agent.Add("metrics", nil), `component "metrics": its function is nil`)
			require.NoError(t, agent.Add("webhook", func(context.Context) error { return broken }))
			err = agent.Run(t.Context())
			assert.ErrorIs(t, err, broken)
			assert.ErrorContains(t, err, "the webhook failed")
		})
	})
	t.Run("a panic of a component is its error", func(t *testing.T) {
		opts := options(t)
		synctest.Test(t, func(t *testing.T) {
			opts.Runtime = fake.New(fake.Options{})
			agent, err := kubeletkit.New(opts)
			require.NoError(t, err)
			require.NoError(t, agent.Add("webhook", func(context.Context) error { panic("nil map") }))
			err = agent.Run(t.Context())
			assert.ErrorContains(t, err, "the webhook failed: panic: nil map")
			assert.ErrorAs(t, err, new(*runtime.PanicError))
		})
	})
}

func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, t.TempDir(), fake.New(fake.Options{}))
		defer n.stop(t)
		n.after(5 * time.Second)
		assert.ErrorContains(t, n.Ready(), "not all sources have delivered their pods; missing: test")
		require.NoError(t, n.Healthy())
		n.source.Set()
		n.after(5 * time.Second)
		require.NoError(t, n.Ready())

		broken := errors.New("modbus gateway away")
		n.AddReadyCheck("gateway", func() error { return broken })
		n.AddHealthCheck("gateway", func() error { return broken })
		assert.ErrorIs(t, n.Ready(), broken)
		assert.ErrorContains(t, n.Healthy(), "check gateway: modbus gateway away")
	})
}

// A runtime that refuses a pod for good makes it Failed.
func TestARuntimeCanRefuseAPodForGood(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Runtime = denying{wrappedRuntime{rt}} })
		defer n.stop(t)
		bad, good := makePod("bad"), makePod("good")
		bad.Labels = map[string]string{"deny": "yes"}
		n.source.Set(bad, good)
		pods := n.after(5 * time.Second)
		assert.Equal(t, v1.PodFailed, pods["bad"].Status.Phase)
		assert.Equal(t, "Denied", pods["bad"].Status.Reason)
		assert.Equal(t, "pods with the label deny do not run here", pods["bad"].Status.Message)
		assert.Equal(t, v1.PodRunning, pods["good"].Status.Phase)
		assert.Empty(t, rt.Instances(fake.Target{Pod: "bad"}))
	})
}

type denying struct{ wrappedRuntime }

func (d denying) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	if req.Pod.Labels["deny"] != "" {
		return runtime.SyncResult{}, &runtime.TerminalError{Reason: "Denied",
			Message: "pods with the label deny do not run here"}
	}
	return d.Runtime.SyncPod(ctx, req)
}

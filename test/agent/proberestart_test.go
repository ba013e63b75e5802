package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
)

// probedNode is a node whose agents are killed, and whose pods have probes that the test answers. It checks each status
// that an agent delivers.
type probedNode struct {
	t    *testing.T
	rt   *fake.Runtime
	dir  string
	pods []*v1.Pod
	// lives is the number of agents so far.
	lives int
	agent *node

	mu sync.Mutex
	// failing has the probes that fail, as "<pod>/<container>/<kind>".
	failing map[string]bool
	// failed has the probes of which an attempt has failed in this agent's life.
	failed map[string]bool
	// exits has the containers that have ended, until another instance is seen.
	exits map[string]bool
	// seen is the last status of each pod.
	seen map[types.UID]v1.PodStatus
	// flips are the changes without a cause.
	flips []string
}

func newProbedNode(t *testing.T, dir string, pods ...*v1.Pod) *probedNode {
	n := &probedNode{
		t: t, rt: fake.New(fake.Options{}), dir: dir, pods: pods,
		failing: map[string]bool{}, failed: map[string]bool{}, exits: map[string]bool{},
		seen: map[types.UID]v1.PodStatus{},
	}
	n.rt.Script(fake.Target{}, fake.Behavior{Exec: func(_ context.Context, cmd []string) (runtime.ExecResult, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.failing[cmd[1]] {
			return runtime.ExecResult{}, nil
		}
		n.failed[cmd[1]] = true
		return runtime.ExecResult{ExitCode: 1, Output: []byte("no")}, nil
	}})
	n.start()
	return n
}

func (n *probedNode) kept() string { return filepath.Join(n.dir, fmt.Sprint("kept-", n.lives)) }

func (n *probedNode) start() {
	store, err := checkpoint.New(n.kept(), checkpoint.Options{})
	require.NoError(n.t, err)
	n.agent = startNodeWith(n.t, filepath.Join(n.dir, "root"), n.rt, func(o *kubeletkit.Options) {
		o.Checkpoint, o.StatusSink = store, probedSink{node: n, life: n.lives}
	})
	n.agent.source.Set(n.pods...)
}

// kill ends the agent, and starts one that finds on the disk what was there when it ended.
func (n *probedNode) kill() {
	synctest.Wait()
	n.mu.Lock()
	before := n.kept()
	n.lives++
	n.failed = map[string]bool{}
	n.mu.Unlock()
	if err := os.CopyFS(n.kept(), os.DirFS(before)); !errors.Is(err, fs.ErrNotExist) { // nothing was written yet
		require.NoError(n.t, err)
	}
	n.agent.stop(n.t)
	n.start()
}

// stop stops the agent, and returns the changes without a cause.
func (n *probedNode) stop() []string {
	n.agent.stop(n.t)
	return n.flips
}

func (n *probedNode) fail(probe string, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing[probe] = yes
}

// exit ends a container.
func (n *probedNode) exit(pod *v1.Pod, container string) {
	n.mu.Lock()
	n.exits[pod.Name+"/"+container] = true
	n.mu.Unlock()
	n.rt.Exit(fake.Target{Pod: pod.Name, Container: container}, 1)
}

func (n *probedNode) status(pod *v1.Pod) v1.PodStatus {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[pod.UID]
}

// probedSink passes the statuses of one agent on to the node. Those of an agent that was killed do not count.
type probedSink struct {
	status.SinkBase
	node *probedNode
	life int
}

// Deliver implements [status.Sink].
func (s probedSink) Deliver(_ context.Context, pod *v1.Pod, now v1.PodStatus) (status.Result, error) {
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.life != n.lives {
		return status.Result{}, nil
	}
	before := n.seen[pod.UID]
	n.seen[pod.UID] = now
	cause := false
	flip := func(name, was string) {
		n.flips = append(n.flips, fmt.Sprintf("%v, agent %d: %s was %s, and is not", time.Now(), n.lives, name, was))
	}
	for c, old := range statusesOf(&before) {
		name, is := pod.Name+"/"+c, statusesOf(&now)[c]
		restarted := n.exits[name] || n.failed[name+"/liveness"] || n.failed[name+"/startup"]
		unready := restarted || n.failed[name+"/readiness"]
		if ptr.Deref(old.Started, false) && !ptr.Deref(is.Started, false) && !restarted {
			flip(name, "started")
		}
		if old.Ready && !is.Ready && !unready {
			flip(name, "ready")
		}
		cause = cause || unready
		if is.ContainerID != old.ContainerID && is.State.Running != nil {
			delete(n.exits, name)
		}
	}
	if ready(&before) && !ready(&now) && !cause {
		flip(pod.Name, "ready")
	}
	return status.Result{}, nil
}

func statusesOf(s *v1.PodStatus) map[string]v1.ContainerStatus {
	out := map[string]v1.ContainerStatus{}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range list {
			out[c.Name] = c
		}
	}
	return out
}

func ready(s *v1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// probedPod returns a pod that is given with defaults, as by an API server.
func probedPod(name string, containers ...v1.Container) *v1.Pod {
	pod := testpod.New(name, testpod.Restart(v1.RestartPolicyAlways), testpod.Container(containers[0]))
	for _, c := range containers[1:] {
		testpod.Sidecar(c)(pod)
	}
	manifest.SetDefaults(pod)
	pod.Spec.NodeName = "node"
	return pod
}

// answered returns a probe that the test answers.
func answered(pod, container, kind string) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: 2, FailureThreshold: 3, TimeoutSeconds: 1}
	if kind == "startup" {
		p.FailureThreshold = 10
	}
	p.Exec = &v1.ExecAction{Command: []string{"probe", pod + "/" + container + "/" + kind}}
	return p
}

// A container that has started, and is ready, stays so when the agent is killed and the next one has no API server,
// although its startup probe would fail now.
func TestProbeResultsOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := v1.Container{Name: "main", Image: testpod.Image, StartupProbe: answered("web", "main", "startup"),
			ReadinessProbe: answered("web", "main", "readiness")}
		web := probedPod("web", c)
		n := newProbedNode(t, dir, web)
		defer func() { assert.Empty(t, n.stop()) }()
		time.Sleep(10 * time.Second)
		require.True(t, *n.status(web).ContainerStatuses[0].Started)
		require.True(t, n.status(web).ContainerStatuses[0].Ready)
		n.fail("web/main/startup", true)
		for range 3 {
			n.kill()
			time.Sleep(time.Minute)
			assert.True(t, *n.status(web).ContainerStatuses[0].Started)
			assert.True(t, n.status(web).ContainerStatuses[0].Ready)
		}
		assert.EqualValues(t, 0, n.status(web).ContainerStatuses[0].RestartCount)

		n.fail("web/main/readiness", true)
		time.Sleep(10 * time.Second)
		require.False(t, n.status(web).ContainerStatuses[0].Ready)
		n.fail("web/main/startup", false)
		n.kill()
		time.Sleep(10 * time.Second)
		assert.True(t, *n.status(web).ContainerStatuses[0].Started)
		assert.False(t, n.status(web).ContainerStatuses[0].Ready, "what is not ready is not so by a restart")

		n.fail("web/main/startup", true)
		n.exit(web, "main")
		time.Sleep(time.Second)
		n.kill()
		time.Sleep(15 * time.Second)
		assert.EqualValues(t, 1, n.status(web).ContainerStatuses[0].RestartCount)
		assert.False(t, *n.status(web).ContainerStatuses[0].Started, "a new instance starts afresh")
	})
}

// probedOp is what happens to a probedNode.
type probedOp struct {
	what string
	pod  int
	// container and kind of a probe that fails or succeeds from now on.
	container, kind string
	wait            time.Duration // after it
}

// No restart of the agent, whenever it is killed, makes a container that has started or is ready one that has not or is
// not.
func TestNoRestartOfTheAgentFlipsAPod(t *testing.T) {
	kinds := []string{"startup", "liveness", "readiness"}
	names := []string{"main", "side"}
	probes := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"main/startup", "main/liveness", "main/readiness", "side/startup", "side/liveness", "side/readiness", "side/",
	}), 0, 7, rapid.ID[string]), 1, 3)
	ops := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) probedOp {
		return probedOp{
			what: rapid.SampledFrom([]string{"kill", "kill", "fail", "succeed", "exit"}).Draw(rt, "what"),
			pod:  rapid.IntRange(0, 2).Draw(rt, "pod"), container: rapid.SampledFrom(names).Draw(rt, "container"),
			kind: rapid.SampledFrom(kinds).Draw(rt, "kind"),
			wait: time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "wait")) * time.Millisecond,
		}
	}), 1, 8)
	rapid.Check(t, func(rt *rapid.T) {
		var pods []*v1.Pod
		for i, has := range probes.Draw(rt, "probes") {
			pods = append(pods, podWithProbes(fmt.Sprint("pod-", i), has))
		}
		list := ops.Draw(rt, "ops")
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(t, err)
		var flips []string
		synctest.Test(t, func(t *testing.T) {
			n := newProbedNode(t, dir, pods...)
			for _, op := range list {
				pod := pods[op.pod%len(pods)]
				switch op.what {
				case "kill":
					n.kill()
				case "exit":
					n.exit(pod, op.container)
				default:
					n.fail(pod.Name+"/"+op.container+"/"+op.kind, op.what == "fail")
				}
				time.Sleep(op.wait)
			}
			flips = n.stop()
		})
		if len(flips) > 0 {
			rt.Fatalf("%s", strings.Join(flips, "\n"))
		}
	})
}

// podWithProbes returns a pod with the probes of the list, as "<container>/<kind>", and a sidecar if it is in one.
func podWithProbes(name string, has []string) *v1.Pod {
	containers := []v1.Container{{Name: "main", Image: testpod.Image}}
	side := v1.Container{Name: "side", Image: testpod.Image}
	with := false
	for _, probe := range has {
		c := &containers[0]
		kind := filepath.Base(probe)
		if filepath.Dir(probe) == "side" || probe == "side/" {
			c, with = &side, true
		}
		switch kind {
		case "startup":
			c.StartupProbe = answered(name, c.Name, kind)
		case "liveness":
			c.LivenessProbe = answered(name, c.Name, kind)
		case "readiness":
			c.ReadinessProbe = answered(name, c.Name, kind)
		}
	}
	if with {
		containers = append(containers, side)
	}
	return probedPod(name, containers...)
}

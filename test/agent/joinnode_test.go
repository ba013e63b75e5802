package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// withReason is a component that changes what is observed.
type withReason struct {
	name   string
	inner  runtime.Inspector
	reason string
}

func (w *withReason) Name() string { return w.name }
func (w *withReason) Inspector(inner runtime.Inspector) runtime.Inspector {
	w.inner = inner
	return w
}
func (w *withReason) Unwrap() any { return w.inner }
func (w *withReason) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	status, err := w.inner.InspectPod(ctx, ref)
	if err != nil {
		return nil, err
	}
	changed := *status
	changed.Name += w.reason
	return &changed, nil
}

// joiner is a component that keeps its node.
type joiner struct {
	name  string
	node  lifecycle.Node
	err   error
	calls chan string
}

func (j *joiner) Name() string { return j.name }

func (j *joiner) Join(node lifecycle.Node) error {
	j.node = node
	return j.err
}

func (j *joiner) NodeStatusChanged() { j.calls <- j.name + " reports" }

// A node has no pods before the agent runs; what can be called then does nothing.
func TestNodeBeforeRun(t *testing.T) {
	j, other := &joiner{name: "ports", calls: make(chan string, 2)}, &joiner{name: "other", calls: make(chan string, 2)}
	early := &joiner{name: "early"}
	early.err = errors.New("no port")
	rt := fake.New(fake.Options{})
	opts := kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: rt,
		Join: []lifecycle.Component{&withReason{name: "a", reason: "-a"}, j, &withReason{name: "b", reason: "-b"},
			other}}
	agent, err := kubeletkit.New(opts)
	require.NoError(t, err)
	assert.Equal(t, "n", j.node.NodeName())
	assert.Equal(t, opts.Join, j.node.Components())
	j.node.NodeStatusChanged()
	assert.Equal(t, "ports reports", <-j.calls)
	assert.Equal(t, "other reports", <-other.calls)

	j.node.AddReadyCheck("port", func() error { return errors.New("no port") })
	assert.ErrorContains(t, agent.Ready(), "check port: no port")
	j.node.AddHealthCheck("port", func() error { return errors.New("broken port") })
	assert.ErrorContains(t, agent.Healthy(), "check port: broken port")

	assert.Empty(t, j.node.Pods())
	desired, complete := j.node.DesiredPods()
	assert.Empty(t, desired)
	assert.False(t, complete)
	assert.Equal(t, lifecycle.PodState{MayRun: true}, j.node.State("uid"), "an earlier agent may have started it")
	assert.Error(t, j.node.RuntimeReadyWithin(time.Hour))
	assert.False(t, j.node.Gone("uid"))
	assert.ErrorIs(t, j.node.Evict("uid", runtime.Eviction{}), kubeletkit.ErrUnknownPod)
	j.node.Sync("uid")
	j.node.RefreshStatus("uid")

	status, err := agent.Parts().Cache.Newer(t.Context(), runtime.PodRef{UID: "1", Name: "web"},
		agent.Parts().Cache.Now())
	require.NoError(t, err)
	assert.Equal(t, "web-a-b", status.Name, "the first component is the innermost")

	_, err = kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: rt,
		Join: []lifecycle.Component{early}})
	assert.EqualError(t, err, `kubeletkit: Options.Join: component "early": no port`)
	for name, call := range callsOfANode {
		t.Run(name, func(t *testing.T) { assert.NotPanics(t, func() { call(early.node) }, "the agent is half made") })
	}
}

// A component that panics when the status of the node has changed keeps it from no other one.
func TestNodeStatusHandlerPanics(t *testing.T) {
	broken, sound := &joiner{name: "broken", calls: make(chan string)},
		&joiner{name: "sound", calls: make(chan string, 1)}
	close(broken.calls) // so that a send panics
	_, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: t.TempDir(), Runtime: fake.New(fake.Options{}),
		Join: []lifecycle.Component{broken, sound}})
	require.NoError(t, err)
	assert.NotPanics(t, sound.node.NodeStatusChanged)
	assert.Equal(t, "sound reports", <-sound.calls)
}

// callsOfANode are the calls that are about pods.
var callsOfANode = map[string]func(lifecycle.Node){
	"DesiredPods":        func(n lifecycle.Node) { n.DesiredPods() },
	"DesiredPod":         func(n lifecycle.Node) { n.DesiredPod("a") },
	"Pods":               func(n lifecycle.Node) { n.Pods() },
	"State":              func(n lifecycle.Node) { n.State("a") },
	"Gone":               func(n lifecycle.Node) { n.Gone("a") },
	"PodStatus":          func(n lifecycle.Node) { n.PodStatus("a") },
	"RuntimeStatus":      func(n lifecycle.Node) { n.RuntimeStatus("a") },
	"RuntimeReadyWithin": func(n lifecycle.Node) { _ = n.RuntimeReadyWithin(0) },
	"VolumeStats":        func(n lifecycle.Node) { _, _ = n.VolumeStats(context.Background(), testpod.New("a")) },
	"Sync":               func(n lifecycle.Node) { n.Sync("a") },
	"RefreshStatus":      func(n lifecycle.Node) { n.RefreshStatus("a") },
	"Evict":              func(n lifecycle.Node) { _ = n.Evict("a", runtime.Eviction{}) },
	"End":                func(n lifecycle.Node) { n.End(testpod.New("a"), nil) },
	"DeleteUnusedContainers": func(n lifecycle.Node) {
		_ = n.DeleteUnusedContainers(context.Background())
	},
	"DeleteUnusedImages": func(n lifecycle.Node) { _ = n.DeleteUnusedImages(context.Background()) },
}

// A component sees and ends the pods of a node that runs.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, j := fake.New(fake.Options{}), &joiner{name: "ports"}
		refuse := lifecycle.AdmitterFunc("names", func(req lifecycle.AdmitRequest) error {
			if req.Pod.Name == "a-refused" {
				return lifecycle.Refuse("BadName", "it is refused")
			}
			return nil
		})
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j, refuse} })
		defer n.stop(t)
		web, batch := makePod("web"), makePod("batch")
		n.source.Set(makePod("a-refused"), web, batch)
		n.after(5 * time.Second)
		assert.Len(t, j.node.Pods(), 2, "a refused pod has no worker")
		assert.NotContains(t, n.Parts().PodManager.Pods(), (*v1.Pod)(nil), "the list of the desired pods is shared")
		assert.Len(t, n.Pods(), 3)
		names := func() (out []string) {
			for _, pod := range j.node.Pods() {
				out = append(out, pod.Name)
			}
			slices.Sort(out)
			return out
		}
		assert.Equal(t, []string{"batch", "web"}, names())
		desired, complete := j.node.DesiredPods()
		assert.Len(t, desired, 3, "also the refused one")
		assert.True(t, complete)
		pod, ok := j.node.DesiredPod(web.UID)
		require.True(t, ok)
		assert.Equal(t, "web", pod.Name)
		_, ok = j.node.DesiredPod("unknown")
		assert.False(t, ok)
		require.NoError(t, j.node.RuntimeReadyWithin(0))
		assert.Equal(t, lifecycle.PodState{Known: true, MayRun: true, Static: true}, j.node.State(web.UID))
		status, ok := j.node.RuntimeStatus(web.UID)
		require.True(t, ok)
		assert.True(t, status.ContainersRunning())
		assert.False(t, j.node.Gone(web.UID))
		assert.True(t, j.node.Gone("unknown"))
		volumes, err := j.node.VolumeStats(t.Context(), web)
		require.NoError(t, err)
		assert.Empty(t, volumes)

		j.node.Event(runtime.Event{Pod: runtime.RefOf(web), Reason: "Tested", Message: "it was seen"})
		j.node.Record(runtime.Record{Pod: runtime.RefOf(web), Stage: runtime.StageDone, Kind: "test"})
		n.after(time.Second)
		assert.True(t, slices.ContainsFunc(n.Parts().History.Entries(web.UID),
			func(e history.Entry) bool { return e.Kind == "test" }))

		require.NoError(t, j.node.Evict(web.UID, runtime.Eviction{Reason: "Evicted", Message: "too large"}))
		j.node.End(batch, new(int64(1)))
		pods := n.after(time.Minute)
		assert.Equal(t, "Evicted", pods["web"].Status.Reason)
		assert.Equal(t, "Terminated", pods["batch"].Status.Reason)
		for _, pod := range []*v1.Pod{web, batch} {
			assert.Equal(t, lifecycle.PodState{Known: true, Ending: true, Stopped: true, Finished: true,
				Static: true}, j.node.State(pod.UID))
		}
		require.NoError(t, j.node.DeleteUnusedContainers(t.Context()))
		require.NoError(t, j.node.DeleteUnusedImages(t.Context()))
		n.source.Set()
		n.after(time.Minute)
		assert.Empty(t, names())
		assert.Zero(t, j.node.State(web.UID))
		assert.True(t, j.node.Gone(web.UID))
	})
}

// unready is a component that keeps the node from being ready, or panics.
type unready struct {
	err   error
	panic bool
}

func (*unready) Name() string { return "unready" }

func (u *unready) NodeReady() error {
	if u.panic {
		panic("broken")
	}
	return u.err
}

// A component that is nothing else can keep the node from being ready. Its panic is an error.
func TestNodeReadyChecker(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		u := &unready{}
		n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Join = []lifecycle.Component{u}
		})
		defer n.stop(t)
		n.source.Set()
		n.after(5 * time.Second)
		require.NoError(t, n.Ready())
		require.NoError(t, n.RuntimeReady())
		u.err = errors.New("the machine is moved")
		assert.EqualError(t, n.Ready(), "the machine is moved")
		assert.EqualError(t, n.RuntimeReadyWithin(time.Hour), "the machine is moved")
		u.panic = true
		assert.ErrorContains(t, n.RuntimeReady(), "broken")
		require.NoError(t, n.Healthy())
	})
}

// What a component adds runs with the agent, and its error ends the agent.
func TestWorkOfANode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := &adder{work: func(context.Context) error {
			time.Sleep(time.Minute)
			return errors.New("the port is lost")
		}}
		agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "n", RootDir: dir, Runtime: fake.New(fake.Options{}),
			Join: []lifecycle.Component{j}})
		require.NoError(t, err)
		began := time.Now()
		assert.ErrorContains(t, agent.Run(t.Context()), "the port failed: the port is lost")
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

// adder is a component with work that it adds.
type adder struct{ work func(context.Context) error }

func (*adder) Name() string { return "adder" }

func (a *adder) Join(node lifecycle.Node) error {
	return node.Add("port", a.work)
}

// A component has the state that it has kept in an earlier agent, if there is a checkpoint.
func TestStateOfAComponent(t *testing.T) {
	for _, kept := range []bool{true, false} {
		dir := t.TempDir()
		for run := range 2 {
			synctest.Test(t, func(t *testing.T) {
				j := &joiner{name: "ports"}
				n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
					o.Join = []lifecycle.Component{j}
					if kept {
						store, err := checkpoint.New(filepath.Join(dir, "checkpoint"), checkpoint.Options{})
						require.NoError(t, err)
						o.Checkpoint = store
					}
				})
				defer n.stop(t)
				var given map[string]int
				assert.Equal(t, kept && run == 1, j.node.LoadState("ports", &given))
				if kept && run == 1 {
					assert.Equal(t, map[string]int{"web": 7}, given)
				}
				j.node.KeepState("ports", map[string]int{"web": 7})
			})
		}
	}
}

package podstatus_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/cluster/podstatus"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// machine is a whole agent with a fake runtime, whose pods come from an API server in memory.
type machine struct {
	*testing.T
	root   string
	api    *apitest.Server
	rt     *fake.Runtime
	static *podconfigfake.Source
	agent  *kubeletkit.Agent
	stop   func()
}

// onMachine runs the test in virtual time.
func onMachine(t *testing.T, test func(m *machine)) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{T: t, root: root, api: apitest.New(), rt: fake.New(fake.Options{}),
			static: podconfigfake.NewSource("file")}
		m.static.Set()
		m.start()
		defer func() { m.stop() }()
		test(m)
	})
}

// ended and orphaned are what package cluster passes to the sink.
func (m *machine) ended(uid types.UID) bool {
	st := m.agent.Parts().PodWorkers.State(uid)
	switch {
	case st.Known():
		return st.Finished && !st.RestartRequested
	case !st.Synced:
		return false
	}
	pod, ok := m.agent.Parts().PodManager.ByUID(uid)
	return ok && pod.DeletionTimestamp != nil
}

func (m *machine) orphaned(namespace, name string) bool {
	return m.agent.Synced() && !slices.ContainsFunc(m.agent.Parts().PodManager.Pods(), func(pod *v1.Pod) bool {
		return pod.Namespace == namespace && pod.Name == name && podspec.IsStatic(pod)
	})
}

func (m *machine) start() {
	client := m.api.Client()
	var sink *podstatus.Sink
	src, err := podsource.New(client, node, podsource.Options{Observers: []func(podsource.Change){
		func(c podsource.Change) { sink.PodsChanged(c) },
	}})
	require.NoError(m, err)
	sink, err = podstatus.New(client, src, podstatus.Options{
		NodeName: node, NodeUID: func() types.UID { return "node-uid" }, Ended: m.ended, Orphaned: m.orphaned,
	})
	require.NoError(m, err)
	m.agent, err = kubeletkit.New(kubeletkit.Options{
		NodeName: node, RootDir: m.root, Runtime: m.rt,
		Sources: []podconfig.Source{src, m.static}, StatusSink: sink,
		Host: &runtime.Host{NodeName: node, Hostname: "host", IPs: []string{"192.0.2.1"}},
	})
	require.NoError(m, err)
	ctx, cancel := context.WithCancel(m.Context())
	done := make(chan error, 1)
	agent := m.agent
	go func() { done <- agent.Run(ctx) }()
	m.stop = func() {
		cancel()
		require.NoError(m, <-done)
	}
}

func (m *machine) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// writes returns the requests since the last call but lists.
func (m *machine) writes() []string {
	return slices.DeleteFunc(m.api.Requests(), func(s string) bool { return s == "list" })
}

// The life of a pod: it runs, is deleted, ends in its grace period, and only then its object
// is gone. The writes are those of kubelet or fewer.
func TestLifeOfAPod(t *testing.T) {
	onMachine(t, func(m *machine) {
		m.after(10 * time.Second)
		m.api.Create(apiPod("web"))
		m.after(10 * time.Second)
		web := m.api.Get("default", "web")
		assert.Equal(t, v1.PodRunning, web.Status.Phase)
		assert.Equal(t, v1.ConditionTrue, condition(web, v1.PodReady).Status)
		assert.Equal(t, web.Generation, web.Status.ObservedGeneration)
		writes := m.writes()
		t.Log("from start to ready:", writes)
		assert.LessOrEqual(t, len(writes), 3, "%s", writes)
		m.after(time.Hour)
		assert.Empty(t, m.writes(), "an idle pod")

		m.api.Delete("default", "web", nil)
		begun := time.Now()
		for m.api.Get("default", "web") != nil && time.Since(begun) < time.Minute {
			running := len(m.rt.Running(fake.Target{})) > 0
			m.after(10 * time.Millisecond)
			if running && m.api.Get("default", "web") == nil && len(m.rt.Running(fake.Target{})) > 0 {
				t.Fatal("the object is gone while a container runs")
			}
		}
		assert.Empty(t, m.rt.Running(fake.Target{}))
		assert.Less(t, time.Since(begun), time.Second)
		writes = m.writes()
		t.Log("for the deletion:", writes)
		assert.LessOrEqual(t, len(writes), 4, "%s", writes)
		assert.Equal(t, "delete default/web", writes[len(writes)-1])
		m.after(time.Hour)
		assert.Empty(t, m.writes())
	})
}

// What happens to pods while the API server is away is told when it is back, and nothing is
// restarted for it.
func TestOutageOfTheServer(t *testing.T) {
	onMachine(t, func(m *machine) {
		job := apiPod("job")
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		m.api.Create(job)
		m.api.Create(apiPod("web"))
		m.api.Create(apiPod("deleted"))
		m.api.Create(apiPod("forced"))
		m.after(10 * time.Second)
		require.Len(t, m.rt.Running(fake.Target{}), 4)
		m.api.Before(func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		m.api.BreakWatches()
		m.after(time.Minute)
		m.rt.Exit(fake.Target{Pod: "job"}, 0)
		m.rt.Exit(fake.Target{Pod: "web"}, 1)
		m.api.Delete("default", "deleted", nil)
		m.api.Delete("default", "forced", ptr.To[int64](0))
		m.after(10 * time.Minute)
		assert.Len(t, m.rt.Running(fake.Target{}), 3, "web runs again, the others go on")
		m.api.Requests()

		m.api.Before(nil)
		m.after(5 * time.Second)
		assert.Equal(t, v1.PodSucceeded, m.api.Get("default", "job").Status.Phase)
		web := m.api.Get("default", "web")
		assert.Equal(t, int32(1), web.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(t, v1.ConditionTrue, condition(web, v1.PodReady).Status)
		assert.Nil(t, m.api.Get("default", "deleted"))
		assert.Len(t, m.rt.Running(fake.Target{}), 1, "only web")
	})
}

// Pods that are deleted while they start, of a node that was down, refused ones, and those that
// have ended before.
func TestDeletionInAnyState(t *testing.T) {
	onMachine(t, func(m *machine) {
		m.after(time.Second)
		m.api.Create(apiPod("starting"))
		synctest.Wait()
		m.api.Delete("default", "starting", nil)
		m.after(5 * time.Second)
		assert.Nil(t, m.api.Get("default", "starting"))

		refused := apiPod("refused")
		refused.Spec.OS = &v1.PodOS{Name: v1.Windows}
		refused.Finalizers = []string{"example.com/keep"}
		m.api.Create(refused)
		done := apiPod("done")
		done.Spec.RestartPolicy = v1.RestartPolicyNever
		m.api.Create(done)
		m.api.Create(apiPod("down"))
		m.after(5 * time.Second)
		assert.Equal(t, v1.PodFailed, m.api.Get("default", "refused").Status.Phase)
		m.rt.Exit(fake.Target{Pod: "done"}, 0)
		m.after(5 * time.Second)
		assert.Equal(t, v1.PodSucceeded, m.api.Get("default", "done").Status.Phase)
		m.api.Delete("default", "done", nil)
		m.api.Delete("default", "refused", nil)
		m.after(5 * time.Second)
		m.api.Update("default", "refused", func(pod *v1.Pod) { pod.Finalizers = nil })
		assert.Nil(t, m.api.Get("default", "done"))
		assert.Nil(t, m.api.Get("default", "refused"))

		m.stop()
		m.rt.Exit(fake.Target{}, 137) // the machine goes down
		m.api.Delete("default", "down", nil)
		m.start()
		m.after(40 * time.Second)
		assert.Nil(t, m.api.Get("default", "down"))
		assert.Empty(t, m.rt.Running(fake.Target{}))
	})
}

// A restart of the agent writes nothing, and neither restarts nor changes anything.
func TestRestartOfTheAgent(t *testing.T) {
	onMachine(t, func(m *machine) {
		m.api.Create(apiPod("web"))
		m.static.Set(staticPod("control", "hash-1"))
		m.after(30 * time.Second)
		assert.Equal(t, v1.PodRunning, m.api.Get("default", "control").Status.Phase)
		before, mirror := m.api.Get("default", "web"), m.api.Get("default", "control")
		m.writes()
		m.stop()
		m.after(time.Minute)
		m.start()
		m.after(time.Minute)
		assert.Empty(t, m.writes())
		assert.Equal(t, before.ResourceVersion, m.api.Get("default", "web").ResourceVersion)
		assert.Equal(t, mirror.ResourceVersion, m.api.Get("default", "control").ResourceVersion)
		assert.Len(t, m.rt.Running(fake.Target{}), 2)
	})
}

// A mirror pod follows its static pod, and its deletion restarts nothing.
func TestStaticPodOfAnAgent(t *testing.T) {
	onMachine(t, func(m *machine) {
		m.static.Set(staticPod("control", "hash-1"))
		m.after(10 * time.Second)
		require.NotNil(t, m.api.Get("default", "control"))
		running := m.rt.Running(fake.Target{})
		m.api.Delete("default", "control", nil)
		m.after(10 * time.Second)
		assert.Equal(t, v1.PodRunning, m.api.Get("default", "control").Status.Phase)
		assert.Equal(t, running, m.rt.Running(fake.Target{}))

		m.static.Set(staticPod("control", "hash-2"))
		m.after(time.Minute)
		assert.Equal(t, "hash-2", m.api.Get("default", "control").Annotations[podspec.AnnotationConfigMirror])
		assert.Equal(t, v1.PodRunning, m.api.Get("default", "control").Status.Phase)
		m.static.Set()
		m.after(time.Minute)
		assert.Nil(t, m.api.Get("default", "control"))

		m.static.Set(staticPod("control", "hash-3"))
		m.after(time.Minute)
		m.stop()
		m.static.Set()
		m.start()
		m.after(time.Minute)
		assert.Nil(t, m.api.Get("default", "control"), "it was removed while no agent ran")
	})
}

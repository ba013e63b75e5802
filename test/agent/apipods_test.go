package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
	statusfake "github.com/kubeletkit/kubeletkit/status/fake"
)

// apiNode is an agent whose source is the API server, and which reports to it.
type apiNode struct {
	*node
	sink   *statusfake.Sink
	status *status.Store
}

func startAPINode(t *testing.T, root string, rt *fake.Runtime, change func(*kubeletkit.Options)) *apiNode {
	t.Helper()
	n := &apiNode{sink: statusfake.NewSink()}
	api := podconfigfake.NewSource(podspec.SourceAPI)
	n.node = startNodeWith(t, root, rt, func(o *kubeletkit.Options) {
		o.Sources, o.StatusSink = []podconfig.Source{api}, n.sink
		o.Override.Status = func(def status.Manager, _ kubeletkit.Parts) (status.Manager, error) {
			n.status = def.(*status.Store)
			return def, nil
		}
		change(o)
	})
	n.source = api
	return n
}

// reported returns the pod with the status that the API server has received.
func (n *apiNode) reported(pod *v1.Pod) *v1.Pod {
	st, _ := n.sink.Latest(pod.UID)
	return testpod.With(pod, func(p *v1.Pod) { p.Status = st })
}

// The API server may show a final phase that another client has set: an administrator, or
// the garbage collection of pods.
func TestAFinalPhaseInTheAPIServerEndsThePod(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: 2 * time.Second})
		n := startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		defer n.stop(t)
		web := makePod("web")
		n.source.Set(web)
		n.after(5 * time.Second)
		failed := n.reported(web)
		require.Equal(t, v1.PodRunning, failed.Status.Phase)
		failed.Status.Phase, failed.Status.Reason = v1.PodFailed, "NodeLost"
		before := len(n.sink.Deliveries(web.UID))
		n.source.Set(failed)
		n.after(5 * time.Second)
		assert.Empty(t, rt.Running(fake.Target{}))
		for _, d := range n.sink.Deliveries(web.UID)[before:] {
			assert.Equal(t, v1.PodFailed, d.Status.Phase, "the phase does not go back")
		}
		last, _ := n.sink.Latest(web.UID)
		assert.Equal(t, "NodeLost", last.Reason)
		assert.NotNil(t, last.ContainerStatuses[0].State.Terminated)
		assert.True(t, n.status.Finished(web.UID))
	})
}

// Nobody but the agent may delete a pod whose graceful deletion was requested, also if the
// agent has refused it.
func TestARefusedPodThatIsDeletedIsFinished(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		n := startAPINode(t, dir, rt, func(o *kubeletkit.Options) {
			o.Join = []lifecycle.Component{lifecycle.AdmitterFunc("test",
				func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Full", "no room") })}
		})
		defer n.stop(t)
		web := makePod("web")
		n.source.Set(web)
		n.after(5 * time.Second)
		require.False(t, n.status.Finished(web.UID))
		n.source.Set(testpod.With(web, testpod.Deleted(30)))
		n.after(5 * time.Second)
		assert.True(t, n.status.Finished(web.UID))
		last, _ := n.sink.Latest(web.UID)
		assert.Equal(t, v1.PodFailed, last.Phase)
		assert.Equal(t, "Full", last.Reason)
		n.source.Set()
		n.after(5 * time.Second)
		assert.Empty(t, held(t, rt))
	})
}

// A restarted agent may refuse a pod that runs. The pod ends in an orderly way, and its
// status has the ends of its containers.
func TestARunningPodThatIsRefused(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: 3 * time.Second})
		n := startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		web := makePod("web")
		n.source.Set(web)
		n.after(5 * time.Second)
		web = n.reported(web)
		n.stop(t)

		n = startAPINode(t, dir, rt, func(o *kubeletkit.Options) {
			o.Join = []lifecycle.Component{lifecycle.AdmitterFunc("test",
				func(lifecycle.AdmitRequest) error { return lifecycle.Refuse("Full", "no room") })}
		})
		defer n.stop(t)
		n.source.Set(web)
		n.after(time.Second)
		last, _ := n.sink.Latest(web.UID)
		assert.Equal(t, v1.PodRunning, last.Phase, "it still runs")
		n.after(time.Minute)
		assert.Empty(t, rt.Running(fake.Target{}))
		last, _ = n.sink.Latest(web.UID)
		assert.Equal(t, v1.PodFailed, last.Phase)
		assert.Equal(t, "Full", last.Reason)
		assert.Equal(t, "Pod was rejected: no room", last.Message)
		if end := last.ContainerStatuses[0].State.Terminated; assert.NotNil(t, end) {
			assert.NotEqual(t, "ContainerStatusUnknown", end.Reason)
		}
		assert.True(t, n.status.Finished(web.UID))
	})
}

// An agent that is drained starts no pod, but takes down those that are to be deleted.
func TestAPodThatIsDeletedDuringADrainIsFinished(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startAPINode(t, dir, fake.New(fake.Options{}), func(*kubeletkit.Options) {})
		defer n.stop(t)
		n.after(time.Second)
		require.NoError(t, n.Drain(t.Context()))
		refused, late := makePod("refused"), testpod.With(makePod("late"), testpod.Deleted(30))
		n.source.Set(refused)
		n.after(time.Second)
		n.source.Set(testpod.With(refused, testpod.Deleted(30)), late)
		n.after(5 * time.Second)
		assert.True(t, n.status.Finished(refused.UID))
		assert.True(t, n.status.Finished(late.UID))
	})
}

// A pod that is being stopped gets traffic as long as it is ready, also if the agent is
// restarted meanwhile.
func TestAPodThatIsBeingStoppedStaysReadyAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Behavior{StopDelay: 50 * time.Second})
		web := testpod.With(makePod("web"), func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 5,
				ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
		})
		n := startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		n.source.Set(web)
		n.after(20 * time.Second)
		deleted := testpod.With(n.reported(web), testpod.Deleted(60))
		require.True(t, deleted.Status.ContainerStatuses[0].Ready)
		n.source.Set(deleted)
		n.after(5 * time.Second)
		n.stop(t)

		n = startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		defer n.stop(t)
		n.source.Set(deleted)
		n.after(20 * time.Second)
		require.NotEmpty(t, rt.Running(fake.Target{}))
		for _, d := range n.sink.Deliveries(web.UID) {
			assert.True(t, d.Status.ContainerStatuses[0].Ready)
		}
		n.after(time.Minute)
		assert.Empty(t, rt.Running(fake.Target{}))
		assert.True(t, n.status.Finished(web.UID))
	})
}

// A restart of a crash loop is two writes to the API server: that it waits, and that it runs.
// The end itself is a third one if the sink is idle in the moment before the back-off is known.
func TestStatusesOfACrashLoop(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Exits(5*time.Second, 1))
		n := startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		defer n.stop(t)
		web := makePod("web")
		n.source.Set(web)
		n.after(19 * time.Second) // it waits for the end of its back-off
		before := len(n.sink.Deliveries(web.UID))
		n.after(70 * time.Second) // it runs at 20 and 45 s
		var states []string
		for _, d := range n.sink.Deliveries(web.UID)[before:] {
			switch state := d.Status.ContainerStatuses[0].State; {
			case state.Waiting != nil:
				states = append(states, state.Waiting.Reason)
			case state.Running != nil:
				states = append(states, "Running")
			}
		}
		assert.Equal(t, []string{"Running", "CrashLoopBackOff", "Running", "CrashLoopBackOff"}, states)
	})
}

// A restart of the agent changes no status: containers stay ready and started, and a sink
// that compares has nothing to write.
func TestARestartOfTheAgentChangesNoStatus(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{Container: "setup"}, fake.Exits(time.Second, 0))
		rt.Script(fake.Target{Pod: "done"}, fake.Exits(3*time.Second, 0))
		setup, always := testpod.Init(v1.Container{Name: "setup", Image: "setup:1"}), v1.ContainerRestartPolicyAlways
		probe := &v1.Probe{PeriodSeconds: 5,
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
		probed := func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].StartupProbe = probe,
				probe
		}
		late := func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) }
		pods := []*v1.Pod{
			testpod.With(makePod("web"), setup),
			testpod.New("done", testpod.Restart(v1.RestartPolicyNever), testpod.Containers("main"), setup),
			testpod.New("late", testpod.Restart(v1.RestartPolicyNever), testpod.Containers("main"), late),
			testpod.With(makePod("side"),
				testpod.Sidecar(v1.Container{Name: "side", Image: "side:1", RestartPolicy: &always})),
			testpod.With(makePod("ready"), probed),
		}
		n := startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		n.source.Set(pods...)
		n.after(40 * time.Second)
		for i, pod := range pods {
			pods[i] = n.reported(pod)
		}
		n.stop(t)

		n = startAPINode(t, dir, rt, func(*kubeletkit.Options) {})
		defer n.stop(t)
		n.source.Set(pods...)
		n.after(time.Minute)
		for _, pod := range pods {
			for _, d := range n.sink.Deliveries(pod.UID) {
				assert.Equal(t, pod.Status, d.Status, pod.Name)
			}
		}
	})
}

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
)

// joined is a component that joins all steps of the pod web, and writes down which of them follow each other.
type joined struct {
	mu    sync.Mutex
	steps []string
	// fails has the errors of the next calls of steps.
	fails map[string]error
	evict func(req lifecycle.AdmitRequest) []lifecycle.Preemption
	// stuck holds Gone up until it is closed; nil: nothing does.
	stuck chan struct{}
	ran   bool
}

func (j *joined) add(pod, step string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if pod != "web" && pod != "uid-web" {
		return nil
	}
	if step != "prepare" || len(j.steps) > 0 && j.steps[len(j.steps)-1] == "admit" { // it comes with each sync
		j.steps = append(j.steps, step)
	}
	err := j.fails[step]
	delete(j.fails, step)
	return err
}

func (j *joined) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.steps
	j.steps = nil
	return out
}

func (j *joined) Name() string { return "vendor" }
func (j *joined) Run(ctx context.Context) error {
	j.mu.Lock()
	j.ran = true
	j.mu.Unlock()
	<-ctx.Done()
	return nil
}
func (j *joined) Admit(req lifecycle.AdmitRequest) (r lifecycle.AdmitResponse, err error) {
	if j.evict != nil {
		r.Evict = j.evict(req)
	}
	return r, j.add(req.Pod.Name, "admit")
}
func (j *joined) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	return lifecycle.PrepareResponse{}, j.add(req.Pod.Name, "prepare")
}
func (j *joined) EditSandbox(_ context.Context, pod *v1.Pod) (runtime.SandboxEdits, error) {
	return runtime.SandboxEdits{Annotations: map[string]string{"vendor": "sandbox"}}, j.add(pod.Name, "sandbox")
}
func (j *joined) EditContainer(_ context.Context, pod *v1.Pod, c *v1.Container) (runtime.ContainerEdits, error) {
	return runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "GPU", Value: "0"}}}, j.add(pod.Name, "container "+c.Name)
}
func (j *joined) Running(_ context.Context, pod *v1.Pod, observed *runtime.PodStatus) error {
	if !observed.ContainersRunning() {
		return errors.New("nothing runs")
	}
	return j.add(pod.Name, "running")
}
func (j *joined) Stopped(_ context.Context, req lifecycle.EndedRequest) error {
	return j.add(req.Pod.Name, "stopped")
}
func (j *joined) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	return j.add(req.Pod.Name, "ended")
}
func (j *joined) Gone(ctx context.Context, req lifecycle.GoneRequest) error {
	if j.stuck != nil {
		select {
		case <-j.stuck:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return j.add(string(req.Pod.UID), fmt.Sprintf("gone %s", filepath.Base(req.Dir)))
}

func TestAComponentJoinsThePodsLife(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		j := &joined{fails: map[string]error{}}
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		web := makePod("web")
		main := web.Spec.Containers[0].Name
		n.source.Set(web, makePod("other"))
		n.after(5 * time.Second)
		assert.Equal(t, []string{"admit", "prepare", "sandbox", "container " + main, "running"}, j.take())
		assert.True(t, j.ran)

		rt.Exit(fake.Target{Pod: "web"}, 1)
		n.after(5 * time.Second)
		assert.Equal(t, []string{"container " + main, "running"}, j.take(), "a restart")

		// The next agent finds the pod running.
		n.stop(t)
		j = &joined{fails: map[string]error{"running": errors.New("no such device"), "stopped": errors.New("busy"),
			"ended": errors.New("busy"), "gone uid-web": errors.New("busy")}}
		n = startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		defer n.stop(t)
		n.source.Set(web, makePod("other"))
		n.after(time.Minute)
		assert.Equal(t, []string{"admit", "running", "running"}, j.take(),
			"it is called again after an error, and the container is not touched")
		assert.Len(t, rt.Running(fake.Target{Pod: "web"}), 1)

		n.source.Set(makePod("other"))
		n.after(time.Minute)
		assert.Equal(t, []string{"stopped", "stopped", "ended", "ended", "gone uid-web", "gone uid-web"}, j.take(),
			"each is repeated until it succeeds")
		assert.Empty(t, j.fails)
		assert.NoDirExists(t, filepath.Join(dir, "pods", "uid-web"))
	})
}

// busy is a component that does not let pods stop.
type busy struct{ atomic.Bool }

func (*busy) Name() string { return "busy" }

func (b *busy) Stopped(context.Context, lifecycle.EndedRequest) error {
	if b.Load() {
		return errors.New("busy")
	}
	return nil
}

// Others take back what a pod has as soon as they see that it has ended.
func TestThePhaseWaitsForStopped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, b := fake.New(fake.Options{}), &busy{}
		b.Store(true)
		var sent atomic.Pointer[v1.PodStatus]
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
			o.Join = []lifecycle.Component{b}
			o.StatusSink = status.SinkFunc(func(_ context.Context, _ *v1.Pod, s v1.PodStatus) error {
				sent.Store(&s)
				return nil
			})
		})
		defer n.stop(t)
		job := makePod("job")
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		n.source.Set(job)
		n.after(5 * time.Second)
		rt.Exit(fake.Target{Pod: "job"}, 0)
		n.after(time.Minute)
		assert.Equal(t, v1.PodRunning, sent.Load().Phase)
		assert.NotNil(t, sent.Load().ContainerStatuses[0].State.Terminated)
		b.Store(false)
		n.after(time.Minute)
		assert.Equal(t, v1.PodSucceeded, sent.Load().Phase)
	})
}

func TestAnErrorOfPrepareKeepsThePodWaiting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := &joined{fails: map[string]error{"prepare": errors.New("the plugin is not registered yet")}}
		n := startNodeWith(t, dir, fake.New(fake.Options{}),
			func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		defer n.stop(t)
		n.source.Set(makePod("web"))
		waiting := n.after(500 * time.Millisecond)["web"].Status.ContainerStatuses[0].State.Waiting
		require.NotNil(t, waiting)
		assert.Equal(t, v1.ContainerStateWaiting{Reason: "ContainerCreating",
			Message: "the plugin is not registered yet"}, *waiting)
		assert.Equal(t, v1.PodRunning, n.after(time.Minute)["web"].Status.Phase)
	})
}

func TestAnErrorThatIsTerminalFailsThePod(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := &joined{fails: map[string]error{"prepare": &runtime.TerminalError{Reason: "NoDevice",
			Message: "the device is broken"}}}
		n := startNodeWith(t, dir, fake.New(fake.Options{}),
			func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		defer n.stop(t)
		n.source.Set(makePod("web"))
		status := n.after(time.Minute)["web"].Status
		assert.Equal(t, []string{"Failed", "NoDevice", "the device is broken"},
			[]string{string(status.Phase), status.Reason, status.Message})
		assert.Equal(t, []string{"admit", "prepare", "stopped", "ended"}, j.take())
	})
}

// Containers of an earlier agent run although the pod cannot be prepared now, and an error of Running fails no pod.
func TestRunningDoesNotDependOnPrepare(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		n := startNode(t, dir, rt)
		n.source.Set(makePod("web"))
		n.after(5 * time.Second)
		n.stop(t)
		j := &joined{fails: map[string]error{
			"prepare": errors.New("the plugin is not registered yet"), "running": &runtime.TerminalError{Reason: "Broken", Message: "no such CPU"},
		}}
		n = startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		defer n.stop(t)
		n.source.Set(makePod("web"))
		assert.Equal(t, v1.PodRunning, n.after(time.Minute)["web"].Status.Phase)
		assert.Equal(t, []string{"admit", "running", "running"},
			slices.DeleteFunc(j.take(), func(s string) bool { return s == "prepare" }))
		assert.Len(t, rt.Running(fake.Target{Pod: "web"}), 1)
	})
}

type broken struct{}

func (broken) Name() string { return "vendor" }

func (broken) Prepare(context.Context, lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	panic("no such device")
}

// A user cannot do anything about a panic, so the message names the component.
func TestPanicOfPrepareNamesTheComponent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startNodeWith(t, dir, fake.New(fake.Options{}),
			func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{broken{}} })
		defer n.stop(t)
		n.source.Set(makePod("web"))
		waiting := n.after(time.Minute)["web"].Status.ContainerStatuses[0].State.Waiting
		require.NotNil(t, waiting)
		assert.Equal(t, "vendor: panic: no such device", waiting.Message)
	})
}

// The next pod of a UID does not start before the step Gone of the last one has succeeded.
func TestAPodOfTheSameUIDWaitsForGone(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		j := &joined{fails: map[string]error{"gone uid-web": errors.New("busy")}, stuck: make(chan struct{})}
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(5 * time.Second)
		n.source.Set()
		n.after(10 * time.Second) // Gone is under way
		j.take()
		n.source.Set(makePod("web"))
		n.after(time.Minute)
		assert.Empty(t, rt.Running(fake.Target{Pod: "web"}))
		close(j.stuck) // it fails, and is repeated
		n.after(time.Minute)
		steps := j.take()
		assert.Len(t, rt.Running(fake.Target{Pod: "web"}), 1, "%v", steps)
		assert.Equal(t, 2, count(steps, "gone uid-web"), "%v", steps)
	})
}

// slowGone is a component whose step Gone takes its time.
type slowGone struct{ left atomic.Int32 }

func (*slowGone) Name() string { return "slow" }

func (g *slowGone) Gone(ctx context.Context, _ lifecycle.GoneRequest) error {
	select {
	case <-time.After(250 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	g.left.Add(1)
	return nil
}

// Many pods that leave slowly delay neither each other nor new pods.
func TestManyPodsLeaveSlowly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt, slow := fake.New(fake.Options{}), &slowGone{}
		n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{slow} })
		defer n.stop(t)
		var pods []*v1.Pod
		for i := range 100 {
			pods = append(pods, makePod(fmt.Sprintf("pod-%02d", i)))
		}
		n.source.Set(pods...)
		n.after(time.Minute)
		require.Len(t, rt.Running(fake.Target{}), 100)
		n.source.Set()
		n.after(time.Second) // they have ended, and leave
		n.source.Set(pods[99], makePod("new"))
		n.after(time.Second)
		assert.Len(t, rt.Running(fake.Target{Pod: "new"}), 1)
		n.after(5 * time.Second)
		assert.Len(t, rt.Running(fake.Target{Pod: "pod-99"}), 1, "it has waited for its own removal")
		assert.EqualValues(t, 100, slow.left.Load())
	})
}

func count(list []string, of string) (n int) {
	for _, s := range list {
		if s == of {
			n++
		}
	}
	return n
}

func TestAdmittedPodsEvictOthers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := &joined{evict: func(req lifecycle.AdmitRequest) (out []lifecycle.Preemption) {
			for _, other := range req.Active {
				if req.Pod.Name == "critical" {
					out = append(out, lifecycle.Preemption{Pod: other, Reason: "Preempting",
						Message: "Preempted in order to admit critical pod"})
				}
			}
			return out
		}}
		n := startNodeWith(t, dir, fake.New(fake.Options{}),
			func(o *kubeletkit.Options) { o.Join = []lifecycle.Component{j} })
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(5 * time.Second)
		n.source.Set(makePod("web"), makePod("critical"))
		pods := n.after(time.Minute)
		assert.Equal(t, v1.PodRunning, pods["critical"].Status.Phase)
		web := pods["web"].Status
		assert.Equal(t, []string{"Failed", "Preempting", "Preempted in order to admit critical pod"},
			[]string{string(web.Phase), web.Reason, web.Message})
		i := slices.IndexFunc(web.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, "Pod was preempted by Kubelet to accommodate a critical pod.", web.Conditions[i].Message)
	})
}

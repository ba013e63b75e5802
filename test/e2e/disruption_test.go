package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// newSuite starts a cluster and an agent for one test.
func newSuite(t *testing.T, options AgentOptions) *suite {
	t.Helper()
	return newSuiteOn(t, Current, options)
}

// newSuiteOn is newSuite on a containerd of the kind.
func newSuiteOn(t *testing.T, kind Containerd, options AgentOptions) *suite {
	t.Helper()
	c := NewClusterWith(t, ClusterOptions{Containerd: kind})
	c.Preload(t, "pause:1", "busybox:1")
	return &suite{Cluster: c, agent: c.StartAgent(t, options)}
}

// makePods makes n pods of the shape.
func makePods(n int, name string, options ...Option) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = MakePod(fmt.Sprintf("%s-%d", name, i), options...)
	}
	return pods
}

// awaitAll waits for each of the pods, and returns what the agent reports.
func (s *suite) awaitAll(t *testing.T, pods []*v1.Pod, conditions ...Condition) []*v1.Pod {
	t.Helper()
	got := make([]*v1.Pod, len(pods))
	for i, pod := range pods {
		got[i] = s.agent.Await(t, pod, 2*within, conditions...)
	}
	return got
}

// running counts the pod's ready sandboxes and running containers.
func (s *suite) running(t *testing.T, pod *v1.Pod) (sandboxes, containers int) {
	t.Helper()
	for _, sb := range s.Sandboxes(t, FullName(pod)) {
		if sb.State == cri.PodSandboxState_SANDBOX_READY {
			sandboxes++
		}
	}
	for _, ctr := range s.Containers(t, FullName(pod)) {
		if ctr.State == cri.ContainerState_CONTAINER_RUNNING {
			containers++
		}
	}
	return sandboxes, containers
}

// adopted asserts that a pod has come through a change of agents untouched.
func adopted(t *testing.T, before, after *v1.Pod) {
	t.Helper()
	assert.Equal(t, before.UID, after.UID)
	if before.Status.Phase == v1.PodRunning { // the runtime forgets the address of a sandbox that has ended
		assert.Equal(t, before.Status.PodIP, after.Status.PodIP)
	}
	for _, b := range before.Status.ContainerStatuses {
		a := Status(after, b.Name)
		assert.Equal(t, b.ContainerID, a.ContainerID, b.Name)
		assert.Equal(t, b.RestartCount, a.RestartCount, b.Name)
		assert.Equal(t, b.State, a.State, b.Name)
		assert.Equal(t, b.LastTerminationState, a.LastTerminationState, b.Name)
	}
}

// An agent that is killed or stopped at any point of starting pods is followed by
// one that finishes the work.
func TestAgentEndsDuringStart(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	for round := range 6 {
		pods := makePods(6, fmt.Sprintf("start-%d", round), Init(Sh("init", "true")),
			Main(Sh("a", Forever), Sh("b", Forever)))
		s.agent.Put(t, pods...)
		pause := time.Duration(100+rand.IntN(900)) * time.Millisecond
		kill := round%2 == 0
		t.Logf("ends after %v, killed: %v", pause, kill)
		time.Sleep(pause)
		if kill {
			s.agent.Kill(t)
		} else {
			s.agent.Stop(t)
		}
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		s.awaitAll(t, pods, Running)
		for _, pod := range pods {
			sandboxes, containers := s.running(t, pod)
			assert.Equal(t, 1, sandboxes, pod.Name)
			assert.Equal(t, 2, containers, pod.Name)
		}
		s.agent.Remove(t, pods...)
		Eventually(t, 2*within, "everything of the pods gone", func() error {
			if lost := s.LostTasks(t); len(lost) > 0 {
				assert.True(t, kill, "an agent that is stopped cuts off no start: %v", lost)
				t.Logf("containerd has lost track of %v: restarting it", lost)
				s.Cluster.Kill(t)
				s.Cluster.Start(t)
			}
			return s.agent.Left(t, pods...)
		})
	}
	s.agent.AwaitNoPodDirs(t, within)
}

// An agent that is killed or stopped while pods run is followed by one that
// adopts them, and catches up with what happened meanwhile.
func TestAgentKilledDuringRun(t *testing.T) {
	t.Parallel()
	testAgentKilledDuringRun(t, newSuite(t, AgentOptions{}))
}

func testAgentKilledDuringRun(t *testing.T, s *suite) {
	steady := MakePod("steady", Sidecar(Sh("side", Forever)), Main(Sh("a", Forever), Sh("b", Forever)),
		Mounted("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}))
	done := MakePod("done", Policy(v1.RestartPolicyNever), Main(Sh("c", "exit 3")))
	crashes, removed, edited := MakePod("crashes", Main(Sh("c", Forever))), MakePod("removed", Main(Sh("c", Forever))),
		MakePod("edited", Main(Sh("c", Forever)))
	s.agent.Put(t, steady, done, crashes, removed, edited)
	s.awaitAll(t, []*v1.Pod{steady, crashes, removed, edited}, Running)
	s.KillProcess(t, FullName(steady), "a")
	before := s.agent.Await(t, steady, within, Restarts("a", 1), Running)
	doneBefore := s.agent.Await(t, done, within, Phase(v1.PodFailed))
	crashed, old := s.agent.Await(t, crashes, within, Running), s.agent.Await(t, edited, within, Running)

	// Nothing happened meanwhile.
	for _, stop := range []func(testing.TB){s.agent.Kill, func(t testing.TB) {
		took := s.agent.Stop(t)
		assert.Less(t, took, 5*time.Second, "SIGTERM ends the agent in seconds")
	}} {
		stop(t)
		sandboxes, containers := s.running(t, steady)
		assert.Equal(t, []int{1, 3}, []int{sandboxes, containers}, "pods go on without the agent")
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		after := s.agent.Await(t, steady, within, Running, Ready(true))
		adopted(t, before, after)
		assert.Equal(t, before.Status.StartTime.Time, after.Status.StartTime.Time)
		adopted(t, doneBefore, s.agent.Await(t, done, within, Phase(v1.PodFailed)))
	}

	// Something happened meanwhile.
	s.agent.Kill(t)
	s.KillProcess(t, FullName(crashes), "c")
	s.agent.Remove(t, removed)
	edit := Sh("c", Forever)
	edit.Env = []v1.EnvVar{{Name: "EDIT", Value: "1"}}
	s.agent.Put(t, MakePod("edited", Main(edit)))
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	after := s.agent.Await(t, crashes, within, Restarts("c", 1), Running)
	assert.Equal(t, crashed.UID, after.UID)
	s.agent.AwaitGone(t, within, removed)
	s.agent.Await(t, edited, within, Running, func(pod *v1.Pod) error {
		if pod.UID == old.UID {
			return fmt.Errorf("still the old one")
		}
		return nil
	})
	adopted(t, before, s.agent.Await(t, steady, within, Running))
	s.agent.Remove(t, steady, done, crashes, edited)
	s.agent.AwaitGone(t, 2*within, steady, done, crashes, edited)
	s.agent.AwaitNoPodDirs(t, within)
}

// An agent that is killed while pods are removed is followed by one that removes
// them.
func TestAgentKilledDuringRemoval(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	for round := range 3 {
		polite := makePods(4, fmt.Sprintf("polite-%d", round), Main(Sh("c", Forever)))
		stubborn := makePods(2, fmt.Sprintf("stubborn-%d", round), Grace(2), Main(Sh("c", Stubborn)))
		pods := append(polite, stubborn...)
		s.agent.Put(t, pods...)
		s.awaitAll(t, pods, Running)
		s.agent.Remove(t, pods...)
		time.Sleep(time.Duration(50+rand.IntN(1500)) * time.Millisecond)
		s.agent.Kill(t)
		s.agent.Start(t)
		s.agent.WaitHealthy(t)
		s.agent.AwaitGone(t, 2*within, pods...)
	}
	s.agent.AwaitNoPodDirs(t, within)
}

// Containers continue to run while containerd does not, and the agent continues when
// containerd is back.
func TestRuntimeKilled(t *testing.T) {
	t.Parallel()
	testRuntimeKilled(t, newSuite(t, AgentOptions{}))
}

func testRuntimeKilled(t *testing.T, s *suite) {
	steady := makePods(3, "steady", Main(Sh("c", Forever)))
	crashes, removed := MakePod("crashes", Main(Sh("c", Forever))), MakePod("removed", Main(Sh("c", Forever)))
	s.agent.Put(t, steady...)
	s.agent.Put(t, crashes, removed)
	before := s.awaitAll(t, steady, Running)
	s.awaitAll(t, []*v1.Pod{crashes, removed}, Running)
	pid := s.PID(t, s.Newest(t, FullName(crashes), "c").Id)

	s.Cluster.Kill(t)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	added := MakePod("added", Main(Sh("c", Forever)))
	s.agent.Put(t, added)
	s.agent.Remove(t, removed)
	time.Sleep(3 * time.Second)
	assert.False(t, s.agent.Exited())
	list, err := s.agent.Pods()
	require.NoError(t, err, "the agent answers while its runtime is away")
	assert.NotEmpty(t, list.Items)

	s.Cluster.Start(t)
	s.agent.Await(t, added, within, Running)
	s.agent.Await(t, crashes, within, Restarts("c", 1), Running)
	s.agent.AwaitGone(t, within, removed)
	for i, after := range s.awaitAll(t, steady, Running, Ready(true)) {
		adopted(t, before[i], after)
	}
	// Once more while pods start.
	more := makePods(5, "more", Main(Sh("c", Forever)))
	s.agent.Put(t, more...)
	time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
	s.Cluster.Kill(t)
	s.Cluster.Start(t)
	s.awaitAll(t, more, Running)
	for _, pod := range more {
		sandboxes, containers := s.running(t, pod)
		assert.Equal(t, []int{1, 1}, []int{sandboxes, containers}, pod.Name)
	}
}

// If there is no runtime when an agent starts, the agent waits and logs that. When the runtime
// is there, the pods start. This agent has the default crash-loop back-off.
func TestRuntimeAbsentAtStart(t *testing.T) {
	t.Parallel()
	c := NewClusterWith(t, ClusterOptions{Down: true})
	s := &suite{Cluster: c,
		agent: c.NewAgent(t, AgentOptions{Config: map[string]any{"crashLoopBackOff": map[string]any{}}})}
	dir := t.TempDir()
	crashes := MakePod("crashes", Main(Sh("c", "date +%s >> /shared/log; exit 1")), Shared(dir))
	pod := MakePod("waits", Main(Sh("c", Forever)))
	s.agent.Put(t, pod, crashes)
	s.agent.Start(t)
	Eventually(t, within, "the log names the socket", func() error {
		log, err := os.ReadFile(s.agent.LogPath())
		if err == nil && !strings.Contains(string(log), filepath.Base(strings.TrimPrefix(c.Endpoint(), "unix://"))) {
			err = fmt.Errorf("%s", log)
		}
		return err
	})
	time.Sleep(3 * time.Second)
	require.False(t, s.agent.Exited())

	c.Start(t)
	s.agent.Await(t, pod, within, Running)
	s.agent.WaitHealthy(t)

	// The first restart is at once, so the first back-off is that of the second.
	waiting := s.agent.Await(t, crashes, within, Restarts("c", 1), Waiting("c", "CrashLoopBackOff"))
	assert.Contains(t, Status(waiting, "c").State.Waiting.Message, "back-off 10s")
	s.agent.Await(t, crashes, within, Restarts("c", 2))
	lines := awaitLines(t, dir, 3)
	var at [3]int64
	for i := range at {
		fmt.Sscan(lines[i], &at[i])
	}
	assert.GreaterOrEqual(t, at[2]-at[1], int64(9), "the second after 10 s")
}

// This one has the machine for itself, before those that run side by side.
func TestHundredPods(t *testing.T) {
	s := newSuite(t, AgentOptions{})
	pods := makePods(100, "many", Main(Sh("c", Forever)))
	begin := time.Now()
	s.agent.Put(t, pods...)
	s.awaitAll(t, pods, Running)
	t.Logf("100 pods running after %v", time.Since(begin))
	for _, ctr := range s.Containers(t, "") {
		assert.Zero(t, ctr.Metadata.Attempt, ctr.Labels)
	}
	assert.Len(t, s.Containers(t, ""), 100)
	assert.Len(t, s.Sandboxes(t, ""), 100)
	begin = time.Now()
	s.agent.Remove(t, pods...)
	s.agent.AwaitGone(t, 3*within, pods...)
	t.Logf("100 pods gone after %v", time.Since(begin))
	s.agent.AwaitNoPodDirs(t, within)
}

// Pods go from a kubelet to this agent and back as if nothing happened.
func TestKubeletAdoption(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"kubelet first", "kubelet last"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			Need(t)
			c := NewCluster(t)
			c.Preload(t, "pause:1", "busybox:1")
			first := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{Binary: KubeletBinary(t)})}
			second := &suite{Cluster: c, agent: c.NewAgent(t, AgentOptions{})}
			if order == "kubelet last" {
				first, second = second, first
			}
			pods := adoptionPods()
			first.agent.Put(t, pods...)
			first.agent.Start(t)
			first.agent.WaitHealthy(t)
			before := first.awaitAll(t, pods[:len(pods)-1], Running, Ready(true))
			first.agent.Await(t, pods[len(pods)-1], within, Phase(v1.PodSucceeded))
			first.KillProcess(t, FullName(pods[0]), "a")
			before[0] = first.agent.Await(t, pods[0], within, Restarts("a", 1), Running, Ready(true))
			containers := len(c.Containers(t, ""))
			first.agent.Stop(t)

			second.agent.Start(t)
			second.agent.WaitHealthy(t)
			check := func() {
				for i := range before {
					adopted(t, before[i], second.agent.Await(t, pods[i], within, Running, Ready(true)))
				}
				second.agent.Await(t, pods[len(pods)-1], within, Phase(v1.PodSucceeded))
				assert.Len(t, c.Containers(t, ""), containers)
			}
			check()
			time.Sleep(5 * time.Second) // for whoever would change his mind
			check()
			second.KillProcess(t, FullName(pods[0]), "a")
			second.agent.Await(t, pods[0], within, Restarts("a", 2), Running)
			second.agent.Remove(t, pods...)
			second.agent.AwaitGone(t, 2*within, pods...)
		})
	}
}

// adoptionPods are pods with many fields, whose hashes both agents must agree on;
// the last one ends by itself. They give their UIDs, because the UID that a
// kubelet makes from the content of a manifest changes with its version.
func adoptionPods() []*v1.Pod {
	rich := Sh("a", Forever)
	rich.Env = []v1.EnvVar{
		{Name: "A", Value: "b"},
		{Name: "NODE", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}
	rich.Ports = []v1.ContainerPort{{ContainerPort: 80}}
	// A guest may need more than the default of a second.
	rich.LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		TimeoutSeconds: 60}
	rich.SecurityContext = &v1.SecurityContext{RunAsUser: ptr(int64(1000))}
	rich.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	pods := []*v1.Pod{
		MakePod("adopt-rich", Init(Sh("init", "true")), Sidecar(Sh("side", Forever)), Main(rich, Sh("b", Forever)),
			Volume("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})),
		MakePod("adopt-plain", Main(Sh("c", Forever))),
		MakePod("adopt-done", Policy(v1.RestartPolicyNever), Main(Sh("c", "true"))),
	}
	for i, pod := range pods {
		pod.UID = podUID(i)
	}
	return pods
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// within is how long a test waits for what should take a second or two: the
// machine may be small and busy.
const within = 60 * time.Second

// suite is one cluster and one agent that many tests share: each has pods of
// its own names.
type suite struct {
	*Cluster
	agent *Agent
}

// podTest is a test that disturbs no pods but its own.
type podTest struct {
	name string
	run  func(*testing.T, *suite)
}

// TestPods runs what needs no disturbance on one agent, side by side.
func TestPods(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	s.runAll(t, []podTest{
		{"Start", testStart},
		{"RestartPolicies", testRestartPolicies},
		{"Crash", testCrash},
		{"BackOff", testBackOff},
		{"InitOrder", testInitOrder},
		{"InitFailure", testInitFailure},
		{"Sidecars", testSidecars},
		{"SidecarRestart", testSidecarRestart},
		{"RestartAll", testRestartAll},
		{"Grace", testGrace},
		{"PreStop", testPreStop},
		{"EditContent", testEditContent},
		{"EditWithUID", testEditWithUID},
		{"RapidEdits", testRapidEdits},
		{"RemoveAndReturn", testRemoveAndReturn},
		{"BadManifests", testBadManifests},
		{"Volumes", testVolumes},
		{"SubPathEscape", testSubPathEscape},
		{"UnknownVolume", testUnknownVolume},
		{"Environment", testEnvironment},
		{"Security", testSecurity},
		{"HostNetwork", testHostNetwork},
		{"HostPort", testHostPort},
		{"ImagePolicies", testImagePolicies},
		{"ImageBackOff", testImageBackOff},
		{"Probes", testProbes},
	})
	assert.False(t, s.agent.Exited())
}

// runAll runs the tests side by side, and returns when all are done.
func (s *suite) runAll(t *testing.T, tests []podTest) {
	// The group is a subtest of its own so that what follows it finds all of them
	// done, and the agent still running.
	t.Run("all", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, s)
			})
		}
	})
	s.agent.AwaitNoPodDirs(t, within)
}

// put writes the pod's manifest, and removes the pod when the test ends.
func (s *suite) put(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	s.agent.Put(t, pod)
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(s.agent.Manifests, pod.Name+".yaml")); err == nil {
			s.agent.Remove(t, pod)
			s.agent.AwaitGone(t, within, pod)
		}
	})
	return pod
}

// remove removes the pod's manifest and waits until nothing of it is left.
func (s *suite) remove(t *testing.T, pod *v1.Pod) {
	t.Helper()
	s.agent.Remove(t, pod)
	s.agent.AwaitGone(t, within, pod)
}

// logLines returns the lines of the file "log" in a directory that a pod has
// mounted with Shared.
func logLines(dir string) []string {
	data, _ := os.ReadFile(filepath.Join(dir, "log"))
	return strings.Fields(string(data))
}

// awaitLines waits until the log has that many lines, or more: a container runs
// before its script writes anything.
func awaitLines(t *testing.T, dir string, n int) []string {
	t.Helper()
	var lines []string
	Eventually(t, within, "containers write", func() error {
		if lines = logLines(dir); len(lines) < n {
			return fmt.Errorf("%v", lines)
		}
		return nil
	})
	return lines
}

// logged is a script that writes name-start, waits for SIGTERM, takes its time,
// and writes name-end.
func logged(name string) string {
	return fmt.Sprintf("trap 'sleep 0.3; echo %[1]s-end >> /shared/log; exit 0' TERM; echo %[1]s-start >> "+
		"/shared/log; sleep 2147483647 & wait", name)
}

func testStart(t *testing.T, s *suite) {
	pod := s.put(t, MakePod("start", Main(Sh("a", "echo hello; "+Forever), Sh("b", Forever))))
	got := s.agent.Await(t, pod, within, Running, Ready(true))
	assert.Equal(t, v1.PodQOSBestEffort, got.Status.QOSClass)
	assert.NotNil(t, got.Status.StartTime)
	assert.True(t, strings.HasPrefix(got.Status.PodIP, "10.88."), "pod IP %q", got.Status.PodIP)
	assert.Len(t, got.Status.PodIPs, 1)
	assert.Equal(t, "file", got.Annotations["kubernetes.io/config.source"])
	assert.Equal(t, string(got.UID), got.Annotations["kubernetes.io/config.hash"])
	for _, condition := range []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.ContainersReady,
		v1.PodReadyToStartContainers} {
		assert.True(t, slices.ContainsFunc(got.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == condition && c.Status == v1.ConditionTrue
		}), "condition %s", condition)
	}

	name := FullName(pod)
	sandboxes := s.Sandboxes(t, name)
	require.Len(t, sandboxes, 1)
	assert.Equal(t, map[string]string{
		"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": string(got.UID),
	}, sandboxes[0].Labels)
	a := s.Newest(t, name, "a")
	assert.Equal(t, "containerd://"+a.Id, Status(got, "a").ContainerID)
	assert.Equal(t, "a", a.Labels["io.kubernetes.container.name"])
	assert.Equal(t, "0", a.Annotations["io.kubernetes.container.restartCount"])
	for _, key := range []string{"hash", "terminationMessagePath", "terminationMessagePolicy"} {
		assert.NotEmpty(t, a.Annotations["io.kubernetes.container."+key], key)
	}
	log, err := os.ReadFile(filepath.Join(s.agent.Logs, fmt.Sprintf("default_%s_%s/a/0.log", name, got.UID)))
	assert.NoError(t, err)
	assert.Contains(t, string(log), "stdout F hello")
	assert.Equal(t, name+"\n", s.Exec(t, name, "a", "hostname"))
	assert.Contains(t, s.Exec(t, name, "a", "cat", "/etc/hosts"), got.Status.PodIP+"\t"+name)

	s.remove(t, pod)
	s.agent.AwaitNoPodDirs(t, within)
}

func testRestartPolicies(t *testing.T, s *suite) {
	// The container runs for a moment, so that the agent has seen it run.
	exit := func(code int) v1.Container { return Sh("c", fmt.Sprintf("sleep 0.2; exit %d", code)) }
	for _, test := range []struct {
		name   string
		policy v1.RestartPolicy
		code   int
		wait   []Condition
	}{
		{"always-0", v1.RestartPolicyAlways, 0, []Condition{Restarts("c", 2)}},
		{"always-1", v1.RestartPolicyAlways, 1, []Condition{Restarts("c", 2)}},
		{"onfailure-0", v1.RestartPolicyOnFailure, 0, []Condition{Phase(v1.PodSucceeded), Terminated("c", 0)}},
		{"onfailure-3", v1.RestartPolicyOnFailure, 3, []Condition{Restarts("c", 2)}},
		{"never-0", v1.RestartPolicyNever, 0, []Condition{Phase(v1.PodSucceeded), Terminated("c", 0)}},
		{"never-3", v1.RestartPolicyNever, 3, []Condition{Phase(v1.PodFailed), Terminated("c", 3)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pod := s.put(t, MakePod("policy-"+test.name, Policy(test.policy), Main(exit(test.code))))
			got := s.agent.Await(t, pod, within, test.wait...)
			if got.Status.Phase == v1.PodRunning {
				return
			}
			// What has ended stays so.
			time.Sleep(1500 * time.Millisecond)
			got = s.agent.Await(t, pod, within, test.wait...)
			assert.Zero(t, Status(got, "c").RestartCount)
			assert.Len(t, s.Containers(t, FullName(pod)), 1)
		})
	}
	t.Run("of-container", func(t *testing.T) {
		t.Parallel()
		once, again := exit(3), Sh("again", "sleep 0.2; exit 4")
		never, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
		once.RestartPolicy, again.RestartPolicy = &never, &always
		pod := s.put(t, MakePod("policy-of-container", Policy(v1.RestartPolicyOnFailure), Main(once, again)))
		got := s.agent.Await(t, pod, within, Restarts("again", 2), Terminated("c", 3))
		assert.Zero(t, Status(got, "c").RestartCount)
	})
}

func testCrash(t *testing.T, s *suite) {
	pod := s.put(t, MakePod("crash", Main(Sh("a", Forever), Sh("b", Forever))))
	before := s.agent.Await(t, pod, within, Running)
	s.KillProcess(t, FullName(pod), "a")
	after := s.agent.Await(t, pod, within, Restarts("a", 1), Running)
	a := Status(after, "a")
	require.NotNil(t, a.LastTerminationState.Terminated)
	assert.EqualValues(t, 137, a.LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, Status(before, "a").ContainerID, a.LastTerminationState.Terminated.ContainerID)
	assert.NotEqual(t, Status(before, "a").ContainerID, a.ContainerID)
	assert.Equal(t, Status(before, "b"), Status(after, "b"), "the other container is untouched")
	assert.Equal(t, before.Status.PodIP, after.Status.PodIP)
	assert.Equal(t, before.Status.StartTime, after.Status.StartTime)

	// A pod whose sandbox dies gets a new one, with its attempt number raised.
	sandbox := s.Sandboxes(t, FullName(pod))[0]
	ctx := t.Context()
	_, err := s.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox.Id})
	require.NoError(t, err)
	Eventually(t, within, "new sandbox", func() error {
		for _, sb := range s.Sandboxes(t, FullName(pod)) {
			if sb.State == cri.PodSandboxState_SANDBOX_READY && sb.Metadata.Attempt == 1 {
				return nil
			}
		}
		return fmt.Errorf("none yet")
	})
	s.agent.Await(t, pod, within, Running, Restarts("a", 1), Restarts("b", 1))
}

func testBackOff(t *testing.T, s *suite) {
	dir := t.TempDir()
	pod := s.put(t, MakePod("backoff", Main(Sh("c", "date +%s >> /shared/log; exit 1")), Shared(dir)))
	s.agent.Await(t, pod, within, Restarts("c", 3))
	lines := awaitLines(t, dir, 4)
	// The back-off of 1 s counts from the end of one run to the start of the next.
	for i := 2; i < len(lines); i++ {
		assert.Greater(t, lines[i], lines[i-1], "run %d: %v", i, lines)
	}
}

func testInitOrder(t *testing.T, s *suite) {
	dir := t.TempDir()
	step := func(name string) v1.Container {
		return Sh(name, fmt.Sprintf("echo %[1]s-start >> /shared/log; sleep 0.3; echo %[1]s-end >> /shared/log", name))
	}
	pod := s.put(t, MakePod("init-order", Init(step("one"), step("two")),
		Main(Sh("main", "echo main-start >> /shared/log; "+Forever)), Shared(dir)))
	got := s.agent.Await(t, pod, within, Running, Terminated("one", 0), Terminated("two", 0))
	assert.Zero(t, Status(got, "one").RestartCount)
	assert.Equal(t, []string{"one-start", "one-end", "two-start", "two-end", "main-start"}, awaitLines(t, dir, 5))
	// When the main container is restarted, the init containers are not.
	s.KillProcess(t, FullName(pod), "main")
	s.agent.Await(t, pod, within, Restarts("main", 1), Running)
	assert.Equal(t, []string{"main-start", "main-start"}, awaitLines(t, dir, 6)[4:])
}

func testInitFailure(t *testing.T, s *suite) {
	dir := t.TempDir()
	again := s.put(t,
		MakePod("init-again", Init(Sh("init", "echo try >> /shared/log; test $(wc -l < /shared/log) -ge 3")),
			Main(Sh("main", Forever)), Shared(dir)))
	never := s.put(t, MakePod("init-never", Policy(v1.RestartPolicyNever), Init(Sh("init", "exit 5")),
		Main(Sh("main", Forever))))
	got := s.agent.Await(t, never, within, Phase(v1.PodFailed), Terminated("init", 5))
	assert.Nil(t, Status(got, "main").State.Running)
	s.agent.Await(t, again, within, Running, Restarts("init", 2))
	assert.Len(t, logLines(dir), 3)
}

func testSidecars(t *testing.T, s *suite) {
	dir := t.TempDir()
	pod := s.put(t, MakePod("sidecars", Grace(15),
		Sidecar(Sh("s1", logged("s1"))),
		Init(Sh("init", "echo init >> /shared/log")),
		Sidecar(Sh("s2", logged("s2"))),
		Main(Sh("main", logged("main"))), Shared(dir)))
	s.agent.Await(t, pod, within, Running, Ready(true))
	lines := awaitLines(t, dir, 4)
	assert.Less(t, slices.Index(lines, "s1-start"), slices.Index(lines, "init"), "%v", lines)
	assert.Less(t, slices.Index(lines, "init"), slices.Index(lines, "s2-start"), "%v", lines)
	s.remove(t, pod)
	assert.Equal(t, []string{"main-end", "s2-end", "s1-end"}, logLines(dir)[4:], "%v", logLines(dir))
}

func testSidecarRestart(t *testing.T, s *suite) {
	dir := t.TempDir()
	pod := s.put(t, MakePod("sidecar-restart", Policy(v1.RestartPolicyNever), Sidecar(Sh("side", Forever)),
		Main(Sh("main", "while [ ! -e /shared/go ]; do sleep 0.1; done")), Shared(dir)))
	s.agent.Await(t, pod, within, Running)
	s.KillProcess(t, FullName(pod), "side")
	got := s.agent.Await(t, pod, within, Restarts("side", 1), Running)
	assert.Zero(t, Status(got, "main").RestartCount)
	// When the main container is done, so is the pod, and the sidecar is stopped.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	s.agent.Await(t, pod, within, Phase(v1.PodSucceeded), Terminated("main", 0))
	Eventually(t, within, "the sidecar stopped", func() error {
		if ctr := s.Newest(t, FullName(pod), "side"); ctr.State != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("%v", ctr.State)
		}
		return nil
	})
}

// awaitStopped waits until no container of the pod runs, and tells how long
// that took.
func (s *suite) awaitStopped(t *testing.T, pod *v1.Pod) time.Duration {
	t.Helper()
	begin := time.Now()
	Eventually(t, within, "containers stopped", func() error {
		for _, ctr := range s.Containers(t, FullName(pod)) {
			if ctr.State == cri.ContainerState_CONTAINER_RUNNING {
				return fmt.Errorf("container %s runs", ctr.Metadata.Name)
			}
		}
		return nil
	})
	return time.Since(begin)
}

// awaitTrap waits until the shell of a container has set its trap: until then it ignores SIGTERM.
func awaitTrap(t *testing.T, c *Cluster, pod, container string) {
	t.Helper()
	Eventually(t, within, "the shell has set its trap", func() error {
		const term = 1 << (15 - 1) // SIGTERM in a mask of signals
		fields := strings.Fields(c.Exec(t, pod, container, "grep", "SigCgt", "/proc/1/status"))
		if mask, err := strconv.ParseUint(fields[len(fields)-1], 16, 64); err != nil || mask&term == 0 {
			return fmt.Errorf("%v, %v", fields, err)
		}
		return nil
	})
}

func testGrace(t *testing.T, s *suite) {
	stubborn := s.put(t, MakePod("grace-stubborn", Grace(3), Main(Sh("c", Stubborn))))
	polite := s.put(t, MakePod("grace-polite", Grace(50), Main(Sh("c", Forever))))
	s.agent.Await(t, stubborn, within, Running)
	s.agent.Await(t, polite, within, Running)
	awaitTrap(t, s.Cluster, FullName(polite), "c")

	s.agent.Remove(t, polite)
	assert.Less(t, s.awaitStopped(t, polite), 20*time.Second, "ended by SIGTERM, long before SIGKILL")
	s.agent.AwaitGone(t, within, polite)

	s.agent.Remove(t, stubborn)
	took := s.awaitStopped(t, stubborn)
	assert.Greater(t, took, 2900*time.Millisecond, "the grace period was not waited for")
	assert.Less(t, took, 20*time.Second)
	s.agent.AwaitGone(t, within, stubborn)
}

func testPreStop(t *testing.T, s *suite) {
	dir := t.TempDir()
	c := Sh("c", logged("c"))
	c.Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c",
			"echo poststart >> /shared/log"}}},
		PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c",
			"sleep 0.5; echo prestop >> /shared/log"}}},
	}
	pod := s.put(t, MakePod("prestop", Grace(15), Main(c), Shared(dir)))
	s.agent.Await(t, pod, within, Running)
	assert.ElementsMatch(t, []string{"poststart", "c-start"}, awaitLines(t, dir, 2))
	s.remove(t, pod)
	assert.Equal(t, []string{"prestop", "c-end"}, logLines(dir)[2:])
}

func testEditContent(t *testing.T, s *suite) {
	dir := t.TempDir()
	make := func(name string) *v1.Pod {
		return MakePod("edit-content", Grace(15), Main(Sh("c", logged(name))), Shared(dir))
	}
	pod := s.put(t, make("old"))
	before := s.agent.Await(t, pod, within, Running)
	awaitLines(t, dir, 1)
	s.agent.Put(t, make("new"))
	after := s.agent.Await(t, pod, within, Running, func(p *v1.Pod) error {
		if p.UID == before.UID {
			return fmt.Errorf("still the old one")
		}
		return nil
	})
	assert.Zero(t, Status(after, "c").RestartCount)
	Eventually(t, within, "new started after the old has ended", func() error {
		if got := logLines(dir); !slices.Equal(got, []string{"old-start", "old-end", "new-start"}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func testEditWithUID(t *testing.T, s *suite) {
	make := func(tag string) *v1.Pod {
		a := Sh("a", Forever)
		a.Image = s.Registry.Image("busybox:" + tag)
		pod := MakePod("edit-uid", Main(a, Sh("b", Forever)))
		pod.UID = "11111111-2222-3333-4444-555555555555"
		return pod
	}
	pod := s.put(t, make("1"))
	before := s.agent.Await(t, pod, within, Running)
	assert.Equal(t, pod.UID, before.UID)
	s.agent.Put(t, make("2"))
	after := s.agent.Await(t, pod, within, Restarts("a", 1), Running)
	assert.Equal(t, pod.UID, after.UID)
	assert.Equal(t, "2\n", s.Exec(t, FullName(pod), "a", "sh", "-c", "echo $VERSION"))
	assert.Equal(t, Status(before, "b"), Status(after, "b"))
	assert.Len(t, s.Sandboxes(t, FullName(pod)), 1)
}

func testRapidEdits(t *testing.T, s *suite) {
	make := func(i int) *v1.Pod {
		c := Sh("c", Forever)
		c.Env = []v1.EnvVar{{Name: "EDIT", Value: fmt.Sprint(i)}}
		return MakePod("rapid", Main(c))
	}
	pod := s.put(t, make(0))
	for i := 1; i <= 20; i++ {
		time.Sleep(time.Duration(i%5) * 40 * time.Millisecond)
		s.agent.Put(t, make(i))
	}
	Eventually(t, within, "the last edit runs", func() error {
		got, err := s.agent.Pod(pod)
		if err == nil {
			err = Running(got)
		}
		if err == nil && got.Spec.Containers[0].Env[0].Value != "20" {
			err = fmt.Errorf("edit %s", got.Spec.Containers[0].Env[0].Value)
		}
		return err
	})
	assert.Equal(t, "20\n", s.Exec(t, FullName(pod), "c", "sh", "-c", "echo $EDIT"))
	Eventually(t, within, "one pod is left", func() error {
		if sandboxes, containers := s.Sandboxes(t, FullName(pod)), s.Containers(t,
			FullName(pod)); len(sandboxes) != 1 || len(containers) != 1 {
			return fmt.Errorf("%d sandboxes, %d containers", len(sandboxes), len(containers))
		}
		return nil
	})
}

func testRemoveAndReturn(t *testing.T, s *suite) {
	dir := t.TempDir()
	pod := s.put(t, MakePod("return", Grace(15), Main(Sh("c", logged("c"))), Shared(dir)))
	first := s.agent.Await(t, pod, within, Running)
	awaitLines(t, dir, 1)
	// The same manifest has the same UID; the second life starts after the first.
	s.agent.Remove(t, pod)
	Eventually(t, within, "the agent has noticed", func() error {
		if _, err := s.agent.Pod(pod); err == nil {
			return fmt.Errorf("it still reports pod %s", pod.Name)
		}
		return nil
	})
	s.agent.Put(t, pod)
	awaitLines(t, dir, 3)
	second := s.agent.Await(t, pod, within, Running)
	assert.Equal(t, first.UID, second.UID)
	assert.Equal(t, []string{"c-start", "c-end", "c-start"}, logLines(dir))
}

func testProbes(t *testing.T, s *suite) {
	exec := func(cmd string) v1.ProbeHandler {
		return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", cmd}}}
	}
	probe := func(h v1.ProbeHandler, threshold int32) *v1.Probe {
		return &v1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: threshold, TimeoutSeconds: 5}
	}
	live := Sh("live", "touch /tmp/ok; "+Forever)
	live.LivenessProbe = probe(exec("test -e /tmp/ok"), 1)
	live.StartupProbe = probe(exec("test -e /tmp/ok"), 30)
	web := Sh("web", "mkdir /www && exec httpd -f -p 8000 -h /www")
	web.ReadinessProbe = probe(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready", Port: intOrString(8000)}}, 1)
	web.LivenessProbe = probe(v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intOrString(8000)}}, 3)
	pod := s.put(t, MakePod("probes", Main(live, web)))
	name := FullName(pod)
	before := s.agent.Await(t, pod, within, Running, Ready(false))

	s.Exec(t, name, "web", "touch", "/www/ready")
	s.agent.Await(t, pod, within, Ready(true))
	s.Exec(t, name, "web", "rm", "/www/ready")
	s.agent.Await(t, pod, within, Ready(false))

	s.Exec(t, name, "live", "rm", "/tmp/ok")
	after := s.agent.Await(t, pod, within, Restarts("live", 1), Running)
	assert.Equal(t, Status(before, "web").ContainerID, Status(after, "web").ContainerID)
}

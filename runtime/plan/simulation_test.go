package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// TestSimulation lets Compute rule a pod in a tiny runtime in which containers
// exit, sandboxes die, calls fail half way, images are edited and the agent
// forgets. Every single action is checked against what the API promises; at last
// the disturbances end, and the pod has to come to rest as it should be.
func TestSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		t.Repeat(map[string]func(*rapid.T){
			"sync":             func(t *rapid.T) { s.sync(t, true) },
			"exit":             s.exit,
			"startup passes":   s.startupPasses,
			"probe fails":      s.probeFails,
			"time passes":      s.timePasses,
			"sandbox dies":     s.sandboxDies,
			"state is lost":    s.stateIsLost,
			"instance removed": s.removeOld,
			"image edited":     s.editImage,
			"agent restarts":   func(*rapid.T) { s.crashes = nil },
			"":                 s.check,
		})
		s.settle(t)
	})
}

// codeRestartAll is the exit code for which rules restart all containers.
const codeRestartAll = 42

// simulation is a pod, the runtime that holds it, and what the checks remember.
type simulation struct {
	pod        *v1.Pod
	now        time.Time
	sandboxes  []runtime.SandboxStatus   // the newest first
	containers []runtime.ContainerStatus // the newest first
	probes     probes
	crashes    map[string]plan.Crash
	created    int // instances so far
	edits      int

	// passed has "<sandbox>/<container>" of init containers that have succeeded, or as
	// sidecars have started, in the sandbox.
	passed map[string]bool
	// killed has the reason for which it was decided to kill an instance, which is
	// "" with KillPod. That stands even if the call fails: it may have had its effect.
	killed map[runtime.ContainerID]string
	// debugged has the ephemeral containers that were created.
	debugged map[string]bool
}

func newSimulation(t *rapid.T) *simulation {
	policy := rapid.SampledFrom([]string{"Always", "OnFailure", "Never"})
	text := policy.Draw(t, "policy")
	restartsAll := func() string {
		if rapid.IntRange(0, 3).Draw(t, "restarts all") == 0 {
			return fmt.Sprintf(" restart-all=%d", codeRestartAll)
		}
		return ""
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "inits") {
		kind := rapid.SampledFrom([]string{"init", "sidecar"}).Draw(t, "kind")
		text += fmt.Sprintf("; %s i%d", kind, i)
		if rule := restartsAll(); rule != "" && kind == "init" { // rules need a policy of the container
			text += " policy=" + rapid.SampledFrom([]string{"OnFailure", "Never"}).Draw(t, "policy of its own") + rule
		} else {
			text += rule
		}
		if rapid.Bool().Draw(t, "startup probe") {
			text += " startup"
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "mains") {
		text += fmt.Sprintf("; main m%d liveness", i)
		if rapid.IntRange(0, 3).Draw(t, "own policy") == 0 {
			text += " policy=" + policy.Draw(t, "policy of its own") + restartsAll()
		}
	}
	if rapid.Bool().Draw(t, "ephemeral") {
		text += "; ephemeral e"
	}
	pod := parsePod(t, text)
	for i := range pod.Spec.InitContainers { // only sidecars may have probes
		if c := &pod.Spec.InitContainers[i]; !podspec.IsSidecar(c) {
			c.StartupProbe = nil
		}
	}
	return &simulation{
		pod: pod, now: now, probes: probes{},
		passed: map[string]bool{}, killed: map[runtime.ContainerID]string{}, debugged: map[string]bool{},
	}
}

// sync computes and carries out the actions; with faults, each step may fail.
func (s *simulation) sync(t *rapid.T, faults bool) plan.Actions {
	fails := func(what string) bool { return faults && rapid.IntRange(0, 4).Draw(t, what+" fails") == 0 }
	status := &runtime.PodStatus{
		Sandboxes: slices.Clone(s.sandboxes), Containers: slices.Clone(s.containers),
	}
	a := plan.Compute(plan.Input{Pod: s.pod, Status: status, Probes: s.probes, Now: s.now, Crashes: s.crashes})
	s.crashes = a.Crashes

	require.Equal(t, len(a.Waiting) > 0, a.RetryAfter > 0)
	require.LessOrEqual(t, a.RetryAfter, 5*time.Minute)

	for _, k := range a.Kill {
		s.killed[k.Container.ID] = k.Reason
	}
	if a.KillPod {
		require.Empty(t, a.Kill)
		for _, n := range s.running() {
			if _, before := s.killed[n.ID]; !before {
				s.killed[n.ID] = ""
			}
		}
		for _, group := range plan.StopOrder(s.pod, s.running()) {
			s.checkStopGroup(t, group)
			for _, n := range group {
				if fails("stop") {
					return a
				}
				s.stop(t, n.ID)
			}
		}
		for i := range s.sandboxes {
			s.sandboxes[i].State = runtime.SandboxNotReady
		}
	}
	for _, k := range a.Kill {
		if fails("kill") {
			return a
		}
		s.stop(t, k.Container.ID)
	}
	s.checkRemovals(t, status, &a)
	for _, n := range a.Remove {
		if fails("remove") {
			return a
		}
		s.remove(n.ID)
		delete(s.passed, n.SandboxID+"/"+n.Name)
	}
	sandbox := a.SandboxID
	if a.CreateSandbox {
		if fails("sandbox") {
			return a
		}
		sandbox = s.createSandbox(t, a.Attempt)
	}
	for _, start := range a.Start {
		s.checkStart(t, start, sandbox)
		outcome := "started"
		if fails("start") {
			outcome = rapid.SampledFrom([]string{"no image", "left created"}).Draw(t, "outcome")
		}
		if outcome != "no image" {
			s.create(start, sandbox, outcome == "started")
		}
	}
	return a
}

// checkRemovals: instances are removed for a restart of all containers only, which is complete before anything starts.
// The instances that requested it go last, so that the runtime shows a restart that is interrupted.
func (s *simulation) checkRemovals(t *rapid.T, status *runtime.PodStatus, a *plan.Actions) {
	sources := runtime.RestartingAll(s.pod, status)
	if len(sources) == 0 {
		require.Empty(t, a.Remove)
		return
	}
	require.Empty(t, a.Start, "%s restart all containers", sources)
	requested := func(n runtime.ContainerStatus) bool {
		c, kind := podspec.FindContainer(&s.pod.Spec, n.Name)
		return runtime.RestartsAll(c, kind, &n)
	}
	for i, n := range a.Remove {
		_, kind := podspec.FindContainer(&s.pod.Spec, n.Name)
		require.NotEqual(t, podspec.EphemeralContainer, kind)
		require.False(t, slices.ContainsFunc(s.running(), func(r runtime.ContainerStatus) bool { return r.ID == n.ID }),
			"%s is stopped first", n.Name)
		for _, later := range a.Remove[i+1:] {
			require.False(t, requested(n) && !requested(later), "%s requested it, and goes before %s", n.Name,
				later.Name)
		}
	}
}

// checkStopGroup: a sidecar outlives the main containers and later sidecars.
func (s *simulation) checkStopGroup(t *rapid.T, group []runtime.ContainerStatus) {
	for _, n := range group {
		i := s.initIndex(n.Name)
		if i < 0 || !podspec.IsSidecar(&s.pod.Spec.InitContainers[i]) {
			continue
		}
		for _, other := range s.running() {
			_, kind := podspec.FindContainer(&s.pod.Spec, other.Name)
			require.NotEqual(t, podspec.MainContainer, kind, "%s is stopped before %s", n.Name, other.Name)
			require.LessOrEqual(t, s.initIndex(other.Name), i, "%s is stopped before %s", n.Name, other.Name)
		}
	}
}

func (s *simulation) createSandbox(t *rapid.T, attempt uint32) string {
	require.Empty(t, s.running(), "something still runs")
	for i := range s.sandboxes {
		require.Equal(t, runtime.SandboxNotReady, s.sandboxes[i].State)
		require.Greater(t, attempt, s.sandboxes[i].Attempt)
	}
	sb := runtime.SandboxStatus{IPs: []string{"10.0.0.1"}}
	sb.ID, sb.Attempt, sb.State = fmt.Sprintf("sb%d", attempt), attempt, runtime.SandboxReady
	s.sandboxes = slices.Insert(s.sandboxes, 0, sb)
	return sb.ID
}

// checkStart checks that the container may be started now.
func (s *simulation) checkStart(t *rapid.T, start plan.Start, sandbox string) {
	c, name := start.Container, start.Container.Name
	require.NotEmpty(t, s.sandboxes)
	require.Equal(t, s.sandboxes[0].ID, sandbox)
	require.Equal(t, runtime.SandboxReady, s.sandboxes[0].State)
	for _, n := range s.running() {
		require.NotEqual(t, name, n.Name, "a second instance")
	}
	prev := s.newest(name)
	if prev != nil {
		require.Equal(t, prev.RestartCount+1, start.RestartCount)
	}

	inits := s.pod.Spec.InitContainers
	switch start.Kind {
	case podspec.EphemeralContainer:
		require.False(t, s.debugged[name], "ephemeral containers are started once")
		return
	case podspec.InitContainer:
		inits = inits[:s.initIndex(name)]
	}
	for i := range inits {
		require.True(t, s.passed[sandbox+"/"+inits[i].Name], "%s is started before %s has passed", name, inits[i].Name)
	}

	// Nothing is started again against its policy.
	sidecar := start.Kind == podspec.InitContainer && podspec.IsSidecar(c)
	if prev == nil || prev.State == runtime.ContainerCreated || sidecar {
		return
	}
	require.Equal(t, runtime.ContainerExited, prev.State)
	policy := string(s.pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	reason, killed := s.killed[prev.ID]
	switch {
	case start.Kind == podspec.InitContainer && prev.SandboxID != sandbox && prev.ExitCode == 0:
		// It has to run in each sandbox.
	case start.Kind == podspec.InitContainer && prev.ExitCode == 0 && prev.Hash != podspec.ContainerHash(c):
		// It is not what has succeeded.
	case start.Kind == podspec.InitContainer && prev.ExitCode == 0 && !killed:
		require.Fail(t, "restarted after success", "%s", name)
	case reason == plan.ReasonChanged || reason == plan.ReasonUnknown:
	case policy == "Never":
		require.Fail(t, "restarted under Never", "%s", name)
	case policy == "OnFailure" && !killed:
		require.NotZero(t, prev.ExitCode, "restarted after success under OnFailure")
	}
}

func (s *simulation) create(start plan.Start, sandbox string, started bool) {
	var n runtime.ContainerStatus
	n.ID = runtime.ContainerID{Type: "test", ID: fmt.Sprint(s.created)}
	n.Name, n.SandboxID, n.RestartCount = start.Container.Name, sandbox, start.RestartCount
	n.State, n.CreatedAt, n.Hash = runtime.ContainerCreated, s.now, podspec.ContainerHash(start.Container)
	s.created++
	if started {
		n.State, n.StartedAt = runtime.ContainerRunning, s.now
		if podspec.IsSidecar(start.Container) && start.Container.StartupProbe == nil {
			s.passed[sandbox+"/"+n.Name] = true
		}
	}
	if start.Kind == podspec.EphemeralContainer {
		s.debugged[n.Name] = true
	}
	s.containers = slices.Insert(s.containers, 0, n)
}

// stop ends an instance on behalf of the plan.
func (s *simulation) stop(t *rapid.T, id runtime.ContainerID) {
	n := s.byID(id)
	require.NotNil(t, n)
	require.Contains(t, []runtime.ContainerState{runtime.ContainerRunning, runtime.ContainerUnknown}, n.State)
	code := int32(137)
	// A restarted agent cannot tell a killed init container that exits with 0 from
	// one that has done its work.
	if i := s.initIndex(n.Name); i < 0 || podspec.IsSidecar(&s.pod.Spec.InitContainers[i]) {
		code = rapid.SampledFrom([]int32{0, 137}).Draw(t, "code")
	}
	s.end(n, code)
}

func (s *simulation) end(n *runtime.ContainerStatus, code int32) {
	n.State, n.ExitCode, n.FinishedAt = runtime.ContainerExited, code, s.now
	delete(s.probes, n.ID.ID)
}

// The disturbances.

func (s *simulation) pickRunning(t *rapid.T) *runtime.ContainerStatus {
	running := s.running()
	if len(running) == 0 {
		t.Skip("nothing runs")
	}
	return s.byID(rapid.SampledFrom(running).Draw(t, "instance").ID)
}

func (s *simulation) exit(t *rapid.T) {
	n := s.pickRunning(t)
	s.exitWith(n, rapid.SampledFrom([]int32{0, 1, codeRestartAll}).Draw(t, "code"))
}

func (s *simulation) exitWith(n *runtime.ContainerStatus, code int32) {
	i := s.initIndex(n.Name)
	if code == 0 && i >= 0 && !podspec.IsSidecar(&s.pod.Spec.InitContainers[i]) {
		s.passed[n.SandboxID+"/"+n.Name] = true
	}
	s.end(n, code)
}

func (s *simulation) startupPasses(t *rapid.T) { s.passStartup(s.pickRunning(t)) }

func (s *simulation) passStartup(n *runtime.ContainerStatus) {
	s.probes[n.ID.ID] = "started"
	if i := s.initIndex(n.Name); i >= 0 && podspec.IsSidecar(&s.pod.Spec.InitContainers[i]) {
		s.passed[n.SandboxID+"/"+n.Name] = true
	}
}

func (s *simulation) probeFails(t *rapid.T) {
	s.probes[s.pickRunning(t).ID.ID] = rapid.SampledFrom([]string{"liveness", "startup"}).Draw(t, "probe")
}

func (s *simulation) timePasses(t *rapid.T) {
	s.now = s.now.Add(time.Duration(rapid.IntRange(1, 700).Draw(t, "seconds")) * time.Second)
}

func (s *simulation) sandboxDies(t *rapid.T) {
	if len(s.sandboxes) == 0 || s.sandboxes[0].State != runtime.SandboxReady {
		t.Skip("no sandbox")
	}
	s.sandboxes[0].State = runtime.SandboxNotReady
	for _, n := range s.running() {
		if rapid.IntRange(0, 3).Draw(t, "survives") != 0 { // for the runtime may not know yet
			s.end(s.byID(n.ID), 137)
		}
	}
}

func (s *simulation) stateIsLost(t *rapid.T) { s.pickRunning(t).State = runtime.ContainerUnknown }

// removeOld removes an instance as garbage collection would: one that has a
// newer, or one of an init container that something later has followed.
func (s *simulation) removeOld(t *rapid.T) {
	var old []runtime.ContainerStatus
	for i := range s.containers {
		n := &s.containers[i]
		if n.State == runtime.ContainerExited && (s.newest(n.Name) != n || s.followed(n)) {
			old = append(old, *n)
		}
	}
	if len(old) == 0 {
		t.Skip("nothing to remove")
	}
	s.remove(rapid.SampledFrom(old).Draw(t, "instance").ID)
}

func (s *simulation) remove(id runtime.ContainerID) {
	s.containers = slices.DeleteFunc(s.containers, func(n runtime.ContainerStatus) bool { return n.ID == id })
}

// followed reports whether a main container exists in the init container's sandbox.
func (s *simulation) followed(n *runtime.ContainerStatus) bool {
	if s.initIndex(n.Name) < 0 {
		return false
	}
	return slices.ContainsFunc(s.containers, func(other runtime.ContainerStatus) bool {
		_, kind := podspec.FindContainer(&s.pod.Spec, other.Name)
		return kind == podspec.MainContainer && other.SandboxID == n.SandboxID
	})
}

func (s *simulation) editImage(t *rapid.T) {
	s.pod = s.pod.DeepCopy()
	s.edits++
	inits, mains := s.pod.Spec.InitContainers, s.pod.Spec.Containers
	image := fmt.Sprintf("image:%d", s.edits)
	if i := rapid.IntRange(0, len(inits)+len(mains)-1).Draw(t, "container"); i < len(inits) {
		inits[i].Image = image
	} else {
		mains[i-len(inits)].Image = image
	}
}

// check holds at any time.
func (s *simulation) check(t *rapid.T) {
	seen := map[string]bool{}
	for _, n := range s.running() {
		require.False(t, seen[n.Name], "two instances of %s run", n.Name)
		seen[n.Name] = true
	}
}

// settle ends the disturbances: init containers succeed, probes too, main
// containers run on. The pod then has to come to rest, and to be complete.
func (s *simulation) settle(t *rapid.T) {
	for rounds := 0; ; rounds++ {
		require.Less(t, rounds, 40, "the pod does not come to rest")
		clear(s.probes)
		busy := false
		for _, n := range s.running() {
			i := s.initIndex(n.Name)
			switch {
			case n.State != runtime.ContainerRunning || i < 0:
			case podspec.IsSidecar(&s.pod.Spec.InitContainers[i]):
				s.passStartup(s.byID(n.ID))
			default:
				s.exitWith(s.byID(n.ID), 0)
				busy = true
			}
		}
		a := s.sync(t, false)
		s.now = s.now.Add(a.RetryAfter)
		acted := len(a.Kill)+len(a.Remove)+len(a.Start)+len(a.Waiting) > 0 || a.CreateSandbox
		if !acted && !busy {
			break
		}
	}

	up := false
	for i := range s.pod.Spec.Containers {
		n := s.newest(s.pod.Spec.Containers[i].Name)
		up = up || n != nil && n.State == runtime.ContainerRunning
	}
	if !up {
		require.Empty(t, s.running(), "the pod is done, and something runs")
		return
	}
	for kind, c := range podspec.Containers(&s.pod.Spec) {
		n := s.newest(c.Name)
		running := n != nil && n.State == runtime.ContainerRunning && n.SandboxID == s.sandboxes[0].ID &&
			n.Hash == podspec.ContainerHash(c)
		switch {
		case kind == podspec.InitContainer && podspec.IsSidecar(c):
			require.True(t, running, "sidecar %s", c.Name)
		case kind == podspec.MainContainer && !running:
			require.NotNil(t, n, "%s was never started", c.Name)
			require.Equal(t, runtime.ContainerExited, n.State)
			always := s.pod.Spec.RestartPolicy == v1.RestartPolicyAlways && c.RestartPolicy == nil
			require.False(t, always, "%s does not run", c.Name)
		}
	}
}

func (s *simulation) running() []runtime.ContainerStatus {
	var running []runtime.ContainerStatus
	for _, n := range s.containers {
		if n.State == runtime.ContainerRunning || n.State == runtime.ContainerUnknown {
			running = append(running, n)
		}
	}
	return running
}

func (s *simulation) newest(name string) *runtime.ContainerStatus {
	i := slices.IndexFunc(s.containers, func(n runtime.ContainerStatus) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &s.containers[i]
}

func (s *simulation) byID(id runtime.ContainerID) *runtime.ContainerStatus {
	i := slices.IndexFunc(s.containers, func(n runtime.ContainerStatus) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return &s.containers[i]
}

// initIndex returns the index of the init container of that name, or -1.
func (s *simulation) initIndex(name string) int {
	return slices.IndexFunc(s.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

package status_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// One status with everything in it that is generated, as the API shows it.
func TestGenerateInFull(t *testing.T) {
	pod := podOf(v1.RestartPolicyAlways, "init:setup", "web", "app")
	pod.Generation = 7
	pod.Spec.Containers[1].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"),
			v1.ResourceMemory: resource.MustParse("64Mi")},
		Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("128Mi")},
	}
	pod.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data"},
		{Name: "conf", MountPath: "/conf", ReadOnly: true, RecursiveReadOnly: ptr(v1.RecursiveReadOnlyIfPossible)},
		{Name: "etc", MountPath: "/etc/app", ReadOnly: true},
	}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}}}

	seen := observe("10.0.0.1", "debug/4 running@5", "app/3 running@3.9", "web/2 running@2", "setup/1 exit0@0-1")
	seen.Containers[1].User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000, GID: 1000}}
	seen.Containers[1].Resources = &v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("256Mi")}}
	seen.Containers[1].Mounts = []runtime.Mount{{ContainerPath: "/conf", ReadOnly: true, RecursiveReadOnly: true}}
	seen.IPs = []string{"fd00::1", "10.0.0.1"}

	got, err := yaml.Marshal(status.Generate(status.Input{Pod: pod, Runtime: seen,
		HostIPs: []string{"192.0.2.1", "2001:db8::1"}, Now: at(6.5)}))
	require.NoError(t, err)
	assert.Equal(t, `allocatedResources:
  cpu: 100m
  memory: 64Mi
conditions:
- lastProbeTime: null
  lastTransitionTime: "2026-03-01T12:00:06Z"
  observedGeneration: 7
  status: "True"
  type: PodReadyToStartContainers
- lastProbeTime: null
  lastTransitionTime: "2026-03-01T12:00:06Z"
  observedGeneration: 7
  status: "True"
  type: Initialized
- lastProbeTime: null
  lastTransitionTime: "2026-03-01T12:00:06Z"
  observedGeneration: 7
  status: "True"
  type: Ready
- lastProbeTime: null
  lastTransitionTime: "2026-03-01T12:00:06Z"
  observedGeneration: 7
  status: "True"
  type: ContainersReady
- lastProbeTime: null
  lastTransitionTime: "2026-03-01T12:00:06Z"
  observedGeneration: 7
  status: "True"
  type: PodScheduled
containerStatuses:
- allocatedResources:
    cpu: 100m
    memory: 64Mi
  containerID: fake://3
  image: app:1
  imageID: app@sha256:1
  lastState: {}
  name: app
  ready: true
  resources:
    limits:
      memory: 256Mi
    requests:
      cpu: 100m
      memory: 64Mi
  restartCount: 0
  started: true
  state:
    running:
      startedAt: "2026-03-01T12:00:03Z"
  user:
    linux:
      gid: 1000
      uid: 1000
  volumeMounts:
  - mountPath: /data
    name: data
  - mountPath: /conf
    name: conf
    readOnly: true
    recursiveReadOnly: Enabled
  - mountPath: /etc/app
    name: etc
    readOnly: true
    recursiveReadOnly: Disabled
- containerID: fake://2
  image: web:1
  imageID: web@sha256:1
  lastState: {}
  name: web
  ready: true
  resources: {}
  restartCount: 0
  started: true
  state:
    running:
      startedAt: "2026-03-01T12:00:02Z"
ephemeralContainerStatuses:
- containerID: fake://4
  image: debug:1
  imageID: debug@sha256:1
  lastState: {}
  name: debug
  ready: false
  resources: {}
  restartCount: 0
  state:
    running:
      startedAt: "2026-03-01T12:00:05Z"
hostIP: 192.0.2.1
hostIPs:
- ip: 192.0.2.1
- ip: 2001:db8::1
initContainerStatuses:
- containerID: fake://1
  image: setup:1
  imageID: setup@sha256:1
  lastState: {}
  name: setup
  ready: true
  resources: {}
  restartCount: 0
  started: false
  state:
    terminated:
      containerID: fake://1
      exitCode: 0
      finishedAt: "2026-03-01T12:00:01Z"
      reason: Completed
      startedAt: "2026-03-01T12:00:00Z"
observedGeneration: 7
phase: Running
podIP: 10.0.0.1
podIPs:
- ip: 10.0.0.1
- ip: fd00::1
qosClass: Burstable
resources:
  requests:
    cpu: 100m
    memory: 64Mi
startTime: "2026-03-01T11:59:59Z"
`, string(got))
}

func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		name        string
		hostNetwork bool
		pod, host   []string
		ready       bool
		prev        []string
		want        []string
	}{
		{"none yet", false, nil, nil, false, nil, nil},
		{"one", false, []string{"10.0.0.1"}, []string{"192.0.2.1"}, true, nil, []string{"10.0.0.1"}},
		{"host's family first", false, []string{"10.0.0.1", "fd00::1"}, []string{"2001:db8::1"}, true, nil, []string{"fd00::1", "10.0.0.1"}},
		{"one of each family", false, []string{"10.0.0.1", "10.0.0.2", "bad", "fd00::0001"}, nil, true, nil, []string{"10.0.0.1", "fd00::1"}},
		{"host network", true, nil, []string{"192.0.2.1", "2001:db8::1"}, true, nil, []string{"192.0.2.1", "2001:db8::1"}},
		{"stopped", false, nil, []string{"192.0.2.1"}, false, []string{"10.0.0.1"}, []string{"10.0.0.1"}},
		{"lost while running", false, nil, []string{"192.0.2.1"}, true, []string{"10.0.0.1"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podOf(v1.RestartPolicyAlways, "app")
			pod.Spec.HostNetwork = tc.hostNetwork
			ip := ""
			if tc.ready {
				ip = "x"
			}
			seen := observe(ip)
			seen.IPs = tc.pod
			prev := &v1.PodStatus{}
			for _, ip := range tc.prev {
				prev.PodIPs = append(prev.PodIPs, v1.PodIP{IP: ip})
			}
			s := status.Generate(status.Input{Pod: pod, Runtime: seen, Previous: prev, HostIPs: tc.host, Now: noon})
			var got []string
			for _, ip := range s.PodIPs {
				got = append(got, ip.IP)
			}
			assert.Equal(t, tc.want, got)
			if len(got) > 0 {
				assert.Equal(t, got[0], s.PodIP)
			}
		})
	}
}

func TestReadyToStartContainers(t *testing.T) {
	ready := func(s *runtime.PodStatus) {}
	for _, tc := range []struct {
		name        string
		hostNetwork bool
		change      func(*runtime.PodStatus)
		message     string // kubelet's; empty if True
	}{
		{"ready", false, ready, ""},
		{"none", false, func(s *runtime.PodStatus) { s.Sandboxes = nil }, "no pod sandbox exists"},
		{"dead", false, func(s *runtime.PodStatus) { s.Sandboxes[0].State = runtime.SandboxNotReady }, "pod sandbox is not ready"},
		{"two", false, func(s *runtime.PodStatus) { s.Sandboxes = append(s.Sandboxes, s.Sandboxes[0]) },
			"multiple pod sandboxes are ready and need to be reconciled"},
		{"an old dead one", false, func(s *runtime.PodStatus) { s.Sandboxes = append(s.Sandboxes, observe("").Sandboxes[0]) }, ""},
		{"no address", false, func(s *runtime.PodStatus) { s.Sandboxes[0].IPs = nil }, "pod sandbox has no IP address"},
		{"an address that the runtime does not report", false, func(s *runtime.PodStatus) { s.Sandboxes[0].IPs, s.Sandboxes[0].AddressUnknown = nil, true }, ""},
		{"wrong network", true, ready, "network namespace mode changed and sandbox needs to be recreated"},
		{"host network", true, func(s *runtime.PodStatus) { s.Sandboxes[0].HostNetwork, s.Sandboxes[0].IPs = true, nil }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podOf(v1.RestartPolicyAlways, "app")
			pod.Spec.HostNetwork = tc.hostNetwork
			seen := observe("10.0.0.1")
			tc.change(seen)
			s := status.Generate(status.Input{Pod: pod, Runtime: seen, Now: noon})
			want := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue,
				ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon)}
			if tc.message != "" {
				want.Status, want.Reason, want.Message = v1.ConditionFalse, "PodSandboxNotReady", tc.message
			}
			assert.Equal(t, want, *condition(s.Conditions, v1.PodReadyToStartContainers))
		})
	}
}

// The init containers run again in a new sandbox; that does not undo the initialization
// (kubelet: GeneratePodInitializedCondition).
func TestAPodStaysInitialized(t *testing.T) {
	pod := podOf(v1.RestartPolicyAlways, "init:setup", "app")
	initialized := func(s v1.PodStatus) v1.ConditionStatus {
		for _, c := range s.Conditions {
			if c.Type == v1.PodInitialized {
				return c.Status
			}
		}
		return ""
	}
	s := status.Generate(status.Input{Pod: pod, Runtime: observe("10.0.0.1", "setup/1 running@0"), Now: at(1)})
	assert.Equal(t, v1.ConditionFalse, initialized(s))
	s = status.Generate(status.Input{Pod: pod, Runtime: observe("10.0.0.1", "app/2 running@2", "setup/1 exit0@0-1"),
		Previous: &s, Now: at(3)})
	assert.Equal(t, v1.ConditionTrue, initialized(s))
	again := observe("10.0.0.2", "setup/3 running@5")
	s = status.Generate(status.Input{Pod: pod, Runtime: again, Previous: &s, Now: at(5)})
	assert.Nil(t, s.ContainerStatuses[0].State.Running)
	assert.Equal(t, v1.ConditionTrue, initialized(s))
}

func TestStartTimeOutlivesTheAgent(t *testing.T) {
	pod := podOf(v1.RestartPolicyAlways, "app")
	first := status.Generate(status.Input{Pod: pod, Runtime: &runtime.PodStatus{}, Now: at(-2)})
	assert.Equal(t, at(-2), first.StartTime.Time)

	// A new agent knows nothing; whenever it looks, it finds the same time.
	seen := observe("10.0.0.1", "app/a running@1")
	for _, now := range []time.Time{at(10), at(1e6)} {
		s := status.Generate(status.Input{Pod: pod, Runtime: seen, Now: now})
		assert.Equal(t, at(-1), s.StartTime.Time)
	}
	pod.Status.StartTime = first.StartTime
	s := status.Generate(status.Input{Pod: pod, Runtime: seen, Now: at(10)})
	assert.Equal(t, at(-2), s.StartTime.Time, "unless the API server knows")
}

func TestContainerResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	for _, tc := range []struct {
		name                       string
		spec, actual, before, want v1.ResourceList
	}{
		{"none in the spec", nil, list("1", "1Gi"), nil, nil},
		{"runtime says nothing", list("1", "1Gi"), nil, nil, list("1", "1Gi")},
		{"runtime knows better", list("1", "1Gi"), list("2", "2Gi"), nil, list("2", "2Gi")},
		{"as it was", list("1", "1Gi"), nil, list("3", "3Gi"), list("3", "3Gi")},
		{"memory without a cgroup", list("1", "1Gi"), list("1", ""), list("1", "3Gi"), list("1", "1Gi")},
		{"memory without a cgroup, and a resize is due", list("1", "1Gi"), list("2", ""), list("2", "3Gi"), list("2", "3Gi")},
		{"too small to have an effect", list("1m", ""), list("2m", ""), nil, list("1m", "")},
		{"not too small", list("1m", ""), list("3m", ""), nil, list("3m", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podOf(v1.RestartPolicyAlways, "app")
			pod.Generation, pod.Annotations = 2, map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
			pod.Spec.Containers[0].Resources.Requests = tc.spec
			seen := observe("10.0.0.1", "app/1 running@1")
			if tc.actual != nil {
				seen.Containers[0].Resources = &v1.ResourceRequirements{Requests: tc.actual}
			}
			prev := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
				Name: "app", ContainerID: seen.Containers[0].ID.String(),
				State:     v1.ContainerState{Running: &v1.ContainerStateRunning{}},
				Resources: &v1.ResourceRequirements{Requests: tc.before},
			}}}
			got := status.Generate(status.Input{Pod: pod, Runtime: seen, Previous: prev,
				Now: noon}).ContainerStatuses[0].Resources
			assert.Equal(t, len(tc.want), len(got.Requests))
			for name, q := range tc.want {
				assert.Zero(t, q.Cmp(got.Requests[name]), name)
			}
		})
	}
}

// The resources of a pod that runs are those that its containers have.
func TestPodResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	both := func(l v1.ResourceList) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: l, Limits: l}
	}
	text := func(l v1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	pod := podOf(v1.RestartPolicyAlways, "web", "app")
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = both(list("2", "256Mi"))
	}
	seen := observe("10.0.0.1", "app/2 running@2", "web/1 running@1")
	for i := range seen.Containers {
		seen.Containers[i].Resources = &v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, Limits: list("1", "128Mi")}
	}
	generate := func(seen *runtime.PodStatus) v1.PodStatus {
		return status.Generate(status.Input{Pod: pod, Runtime: seen, Now: noon})
	}
	got := generate(seen)
	require.Equal(t, v1.PodRunning, got.Phase)
	assert.Equal(t, "2 512Mi", text(got.Resources.Requests), "no cgroup has requests of memory")
	assert.Equal(t, "2 256Mi", text(got.Resources.Limits))
	assert.Equal(t, "4 512Mi", text(got.AllocatedResources))
	assert.Equal(t, "4 512Mi", text(generate(nil).Resources.Limits), "before it runs")

	delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
	delete(seen.Containers[1].Resources.Limits, v1.ResourceMemory)
	assert.Equal(t, "2 0", text(generate(seen).Resources.Limits), "web has no limit, so the pod has none")

	pod.Spec.Resources = &v1.ResourceRequirements{Limits: list("8", "1Gi")}
	assert.Equal(t, "8 1Gi", text(generate(seen).Resources.Limits), "it has its own")

	// What is in force for the pod as a whole, as its cgroup has it.
	inForce := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")},
		Limits: list("6", "512Mi")}
	seen.Resources = &inForce
	assert.Equal(t, "3 256Mi", text(generate(seen).Resources.Requests), "no cgroup has requests of memory")
	assert.Equal(t, "6 512Mi", text(generate(seen).Resources.Limits))
	pod.Spec.Resources = nil
	assert.Equal(t, "6 512Mi", text(generate(seen).Resources.Limits), "also of a pod without resources as a whole")
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")},
		Limits: list("5m", "500M")}
	inForce = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2m")},
		Limits: list("10m", "500000000")}
	assert.Equal(t, "1m 256Mi", text(generate(seen).Resources.Requests), "less than a cgroup can express")
	assert.Equal(t, "5m 500M", text(generate(seen).Resources.Limits), "in the form of the spec")
}

// The conditions of a resize are those of the input; the ones before are gone.
func TestResizeConditions(t *testing.T) {
	pending := v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred,
		ObservedGeneration: 3}
	in := status.Input{Pod: podOf(v1.RestartPolicyAlways, "app"), Runtime: observe("10.0.0.1", "app/1 running@1"),
		Now: noon, Resize: []v1.PodCondition{pending}}
	found := func(s v1.PodStatus) (out []v1.PodCondition) {
		for _, c := range s.Conditions {
			if c.Type == v1.PodResizePending {
				out = append(out, c)
			}
		}
		return out
	}
	first := status.Generate(in)
	pending.LastTransitionTime = metav1.NewTime(noon)
	assert.Equal(t, []v1.PodCondition{pending}, found(first))
	in.Previous, in.Now = &first, noon.Add(time.Minute)
	assert.Equal(t, []v1.PodCondition{pending}, found(status.Generate(in)))
	in.Resize = nil
	assert.Empty(t, found(status.Generate(in)))
}

// A static pod that was stopped does not start again: a manifest that comes back
// makes another pod, also if it has the same UID.
func TestPhaseOfStaticPodsIsFinal(t *testing.T) {
	for code, want := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		pod := podOf(v1.RestartPolicyAlways, "app")
		pod.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
		in := status.Input{Pod: pod, Runtime: observe("", fmt.Sprintf("app/a exit%d@0-1", code)), Now: noon}
		assert.Equal(t, v1.PodRunning, status.Generate(in).Phase)
		in.Terminated = true
		assert.Equal(t, want, status.Generate(in).Phase)
	}
}

// Whatever happens to a pod in whatever order, what was shown is not taken back.
func TestHistories(t *testing.T) {
	rank := map[v1.PodPhase]int{v1.PodPending: 0, v1.PodRunning: 1, v1.PodSucceeded: 2, v1.PodFailed: 2}
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure,
			v1.RestartPolicyNever}).Draw(t, "policy")
		pod := podOf(policy, "init:one", "side:log", "a", "b")
		names := []string{"one", "log", "a", "b"}
		var prev *v1.PodStatus
		ended := false
		for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
			var instances []string
			for _, name := range names {
				for n := range rapid.IntRange(0, 3).Draw(t, "instances of "+name) {
					st := rapid.SampledFrom([]string{"created", "unknown", "running@1", "exit0@1-2",
						"exit1@1-2"}).Draw(t, "state")
					instances = append(instances, name+"/"+name+string(rune('0'+n+rapid.IntRange(0, 3).Draw(t, "id")))+
						" "+st)
				}
			}
			in := status.Input{Pod: pod, Previous: prev, Now: at(float64(i))}
			if rapid.Bool().Draw(t, "asked") {
				in.Runtime = observe(rapid.SampledFrom([]string{"", "10.0.0.1"}).Draw(t, "ip"), instances...)
			}
			ended = ended || rapid.Bool().Draw(t, "ended")
			in.Terminated = ended
			s := status.Generate(in)
			if _, known := rank[s.Phase]; !known {
				t.Fatalf("phase %q", s.Phase)
			}
			if s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed {
				for _, c := range s.Conditions {
					if (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && c.Status == v1.ConditionTrue {
						t.Fatalf("%s is True in phase %s", c.Type, s.Phase)
					}
				}
			}
			if prev != nil {
				if rank[s.Phase] < rank[prev.Phase] || rank[prev.Phase] == 2 && s.Phase != prev.Phase {
					t.Fatalf("phase %s after %s", s.Phase, prev.Phase)
				}
				if !s.StartTime.Equal(prev.StartTime) {
					t.Fatalf("start time %v after %v", s.StartTime, prev.StartTime)
				}
				for _, name := range names {
					before, after := containerStatus(append(prev.InitContainerStatuses, prev.ContainerStatuses...),
						name), containerStatus(append(s.InitContainerStatuses, s.ContainerStatuses...), name)
					if after.RestartCount < before.RestartCount {
						t.Fatalf("%s: restart count %d after %d", name, after.RestartCount, before.RestartCount)
					}
				}
				for _, c := range prev.Conditions {
					now := condition(s.Conditions, c.Type)
					if now.Status == c.Status && !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
						t.Fatalf("%s: transition time %v after %v", c.Type, now.LastTransitionTime,
							c.LastTransitionTime)
					}
				}
			}
			again := in
			again.Previous = &s
			if in.Runtime != nil && render(status.Generate(again)) != render(s) {
				t.Fatalf("not stable:\n%s\nthen\n%s", render(s), render(status.Generate(again)))
			}
			prev = &s
		}
	})
}

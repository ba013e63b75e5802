package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestChurn runs the lives of pods of many kinds, up to ten at a time, while the agent is restarted. Nothing is at
// fault, so the log of the agent has no error, no warning but those about what a pod does on purpose, and nothing
// without a reason.
//
// KUBELETKIT_E2E_CHURN is the number of lives on each runtime; 2,000 take about half an hour on two cores:
//
//	KUBELETKIT_E2E_CHURN=2000 go test -run TestChurn -timeout 3h -v ./test/e2e
func TestChurn(t *testing.T) {
	lives, err := strconv.Atoi(cmp.Or(os.Getenv("KUBELETKIT_E2E_CHURN"), "33"))
	require.NoError(t, err)
	settings := map[string]any{
		"containerLogMaxSize": "64Ki", "containerLogMaxFiles": 3, "crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "2s"},
	}
	t.Run("containerd", func(t *testing.T) {
		t.Parallel()
		c := NewCluster(t)
		c.Preload(t, "pause:1", "busybox:1")
		limited := maps.Clone(settings)
		limited["maxOpenFiles"] = 1024 // that of the agent may not be raised
		newChurn(t, c.StartAgent(t, AgentOptions{Config: limited})).run(lives)
	})
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		newChurn(t, StartProcessAgent(t, AgentOptions{Config: settings})).run(lives)
	})
}

// churn is one node.
type churn struct {
	*testing.T
	agent *Agent
	kinds []churnKind
	// restarting is held while the agent is restarted, and by what reads the runtime, which may be a part of the agent.
	restarting sync.RWMutex
}

// churnKind is a kind of pods, and what happens to one before it is removed.
type churnKind struct {
	name string
	pod  func(name string, n int) *v1.Pod
	live func(c *churn, pod *v1.Pod)
	// warns matches the warnings that the pods give rise to.
	warns string
}

func awaits(conditions ...Condition) func(*churn, *v1.Pod) {
	return func(c *churn, pod *v1.Pod) { c.agent.Await(c, pod, 5*within, conditions...) }
}

func newChurn(t *testing.T, agent *Agent) *churn {
	c := &churn{T: t, agent: agent, kinds: slices.Clone(churnKinds)}
	for _, name := range []string{"hello", "shared-volume"} {
		c.kinds = append(c.kinds, shipped(t, name))
	}
	putObject(t, agent.Manifests, "objects.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {key: value}}
- {apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {key: secret}}
`)
	return c
}

// shipped is the pod of a manifest of the repository, with the image of the tests.
func shipped(t *testing.T, name string) churnKind {
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "minikubelet", "manifests", name+".yaml"))
	require.NoError(t, err)
	var made v1.Pod
	require.NoError(t, yaml.UnmarshalStrict(data, &made))
	for _, list := range [][]v1.Container{made.Spec.InitContainers, made.Spec.Containers} {
		for i := range list {
			list[i].Image, list[i].ImagePullPolicy = Sh("", "").Image, v1.PullIfNotPresent
			if p := list[i].ReadinessProbe; p != nil {
				p.TimeoutSeconds = 60 // the machine may be slow
			}
		}
	}
	return churnKind{
		name: name, live: awaits(Running, Ready(true)), warns: "",
		pod: func(name string, _ int) *v1.Pod {
			pod := made.DeepCopy()
			pod.Name, pod.Namespace = name, "default"
			return pod
		},
	}
}

const mounts = "process.kubeletkit.io/mounts"

// onceASecond is a probe of a command that is run once a second.
func onceASecond(script string, failures int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", script}}},
		PeriodSeconds: 1, FailureThreshold: failures, TimeoutSeconds: 60,
	}
}

var churnKinds = []churnKind{
	{
		name: "job", live: awaits(Phase(v1.PodSucceeded)),
		pod: func(name string, _ int) *v1.Pod {
			return MakePod(name, Policy(v1.RestartPolicyNever), Init(Sh("init", "true")), Main(Sh("c", "echo done")))
		},
	},
	{
		name: "failing-job", live: awaits(Phase(v1.PodFailed)),
		pod: func(name string, _ int) *v1.Pod {
			return MakePod(name, Policy(v1.RestartPolicyNever),
				Main(Sh("c", "echo failed >&2; exit 3"), Sh("d", "exit 0")))
		},
	},
	{
		name: "retried-job", live: awaits(Phase(v1.PodSucceeded)), warns: "^Back-off restarting failed container",
		pod: func(name string, _ int) *v1.Pod {
			pod := MakePod(name, Policy(v1.RestartPolicyOnFailure),
				Main(Sh("c", `cd "${MOUNT_DATA:-/data}"; test -e tried || { touch tried; exit 1; }`)),
				Mounted("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
			pod.Annotations = map[string]string{mounts: "env"}
			return pod
		},
	},
	{
		name: "deadline", live: awaits(Phase(v1.PodFailed)),
		pod: func(name string, _ int) *v1.Pod {
			return MakePod(name, Grace(1), Main(Sh("c", Forever)),
				func(pod *v1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr(int64(2)) })
		},
	},
	{ // its log is rotated when it ends
		name: "crash-loop", live: awaits(Restarts("c", 3)), warns: "^Back-off restarting failed container",
		pod: func(name string, _ int) *v1.Pod {
			return MakePod(name, Grace(1), Main(Sh("c", "seq 1 20000; exit 1")))
		},
	},
	{
		name: "writer", live: awaits(Running),
		pod: func(name string, _ int) *v1.Pod {
			return MakePod(name, Grace(1), Main(Sh("c", "seq 1 200000; "+Forever)))
		},
	},
	{
		name: "probes", live: awaits(Running, Ready(true)), warns: "^(Startup|Readiness) probe failed: .",
		pod: func(name string, n int) *v1.Pod {
			c := Sh("c", fmt.Sprintf(`mkdir -p /tmp/%[1]s; cd /tmp/%[1]s; trap "rm -rf /tmp/%[1]s; exit 0" TERM
				(sleep 1; echo >up; sleep 1; echo >ready) &
				httpd=$(command -v httpd || echo busybox httpd); $httpd -f -p %[2]d -h /tmp/%[1]s & wait`, name, 20000+n%1000))
			file := "/tmp/" + name + "/"
			c.StartupProbe, c.LivenessProbe = onceASecond("test -e "+file+"up", 60),
				onceASecond("test -e "+file+"up", 3)
			c.ReadinessProbe = &v1.Probe{
				ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready",
					Port: intOrString(20000 + n%1000)}},
				PeriodSeconds: 1, TimeoutSeconds: 60,
			}
			return MakePod(name, Main(c))
		},
	},
	{
		name: "liveness", live: awaits(Restarts("c", 1), Running), warns: "^(Liveness probe failed: .|Back-off " +
			"restarting failed container)",
		pod: func(name string, _ int) *v1.Pod {
			c := Sh("c", Forever)
			c.LivenessProbe = onceASecond("exit 1", 1)
			return MakePod(name, Grace(1), Main(c))
		},
	},
	{
		name: "hooks", live: awaits(Running, Ready(true)),
		pod: func(name string, _ int) *v1.Pod {
			c := Sh("c", Forever)
			command := func(script string) *v1.LifecycleHandler {
				return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", script}}}
			}
			c.Lifecycle = &v1.Lifecycle{PostStart: command("echo begin"), PreStop: command("sleep 0.2")}
			return MakePod(name, Sidecar(Sh("side", Forever)), Main(c))
		},
	},
	{
		name: "volumes", live: awaits(Running, Ready(true)),
		pod: func(name string, _ int) *v1.Pod {
			c := Sh("c",
				`test "$PASSWORD" = secret && test "$key" = value && test -s "${MOUNT_ALL:-/all}/config" || exit 1; `+
					Forever)
			c.Env = []v1.EnvVar{{Name: "PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "password"}, Key: "key",
			}}}}
			ref := v1.LocalObjectReference{Name: "settings"}
			c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref}}}
			pod := MakePod(name, Main(c),
				Mounted("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "password"}}),
				Mounted("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}),
				Mounted("all", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref, Items: []v1.KeyToPath{{Key: "key", Path: "config"}}}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
						{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
					}}},
				}}}))
			pod.Annotations = map[string]string{mounts: "env"}
			return pod
		},
	},
	{
		name: "stubborn", live: awaits(Running),
		pod: func(name string, _ int) *v1.Pod { return MakePod(name, Grace(1), Main(Sh("c", Stubborn))) },
	},
	{
		name: "edited", pod: func(name string,
			_ int) *v1.Pod {
			return MakePod(name, Grace(1), Main(Sh("c", Forever)))
		},
		live: func(c *churn, pod *v1.Pod) {
			first := c.agent.Await(c, pod, 5*within, Running)
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "EDITED", Value: "1"}}
			c.agent.Put(c, pod)
			c.agent.Await(c, pod, 5*within, Running, func(now *v1.Pod) error {
				if now.UID == first.UID {
					return fmt.Errorf("it is the first one")
				}
				return nil
			})
		},
	},
}

// run runs that many lives, and restarts the agent three times meanwhile.
func (c *churn) run(lives int) {
	var next, done atomic.Int64
	var all sync.WaitGroup
	for range min(max(lives/50, 4), 10) {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < lives && !c.Failed(); n = int(next.Add(1)) - 1 {
				kind := c.kinds[n%len(c.kinds)]
				pod := kind.pod(fmt.Sprintf("%s-%d", kind.name, n), n)
				c.agent.Put(c, pod)
				kind.live(c, pod)
				c.agent.Remove(c, pod)
				c.awaitGone(pod)
				done.Add(1)
			}
		})
	}
	for i := range int64(3) {
		for done.Load() < int64(lives)*(i+1)/4 && !c.Failed() {
			time.Sleep(100 * time.Millisecond)
		}
		c.restart()
	}
	all.Wait()
	c.agent.AwaitNoPodDirs(c, within)
	c.agent.Stop(c)
	c.check(lives)
}

func (c *churn) awaitGone(pod *v1.Pod) {
	c.restarting.RLock()
	defer c.restarting.RUnlock()
	c.agent.AwaitGone(c, 5*within, pod)
}

func (c *churn) restart() {
	c.restarting.Lock()
	defer c.restarting.Unlock()
	c.agent.Stop(c)
	c.agent.Start(c)
	c.agent.WaitHealthy(c)
}

var (
	logMessage = regexp.MustCompile(` msg=("(?:[^"\\]|\\.)*"|\S*)`)
	logPod     = regexp.MustCompile(` pod="?default/(\S+?)(?:-\d+)-` + NodeName + `\(`)
	noReason   = regexp.MustCompile(` (err|error|reason)=""|:\s*$`)
)

// check asserts that the log has nothing that it should not.
func (c *churn) check(lives int) {
	log, err := os.ReadFile(c.agent.LogPath())
	require.NoError(c, err)
	kinds := map[string]churnKind{}
	for _, kind := range c.kinds {
		kinds[kind.name] = kind
	}
	wrong := map[string][]string{} // lines, by their messages without what differs
	lines := 0
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "time=") {
			continue // the table of pods
		}
		lines++
		message := ""
		if m := logMessage.FindStringSubmatch(line); m != nil {
			if message, err = strconv.Unquote(m[1]); err != nil {
				message = m[1]
			}
		}
		bad := message == "" || noReason.MatchString(line) || noReason.MatchString(message)
		if strings.Contains(line, " level=ERROR") || strings.Contains(line, " level=WARN") {
			kind := churnKind{}
			if m := logPod.FindStringSubmatch(line); m != nil {
				kind = kinds[m[1]]
			}
			bad = bad || kind.warns == "" || strings.Contains(line, " level=ERROR") ||
				!regexp.MustCompile(kind.warns).MatchString(message)
		}
		if strings.HasPrefix(message, "The pod workers cannot stop: a call has not returned") {
			bad = false // the machine is slow
		}
		if bad {
			key := regexp.MustCompile(`[0-9a-f]{8,}|\d+`).ReplaceAllString(message, "*")
			wrong[key] = append(wrong[key], line)
		}
	}
	c.Logf("%d lives, %d lines, %d of them wrong, of %d kinds", lives, lines,
		len(slices.Concat(slices.Collect(maps.Values(wrong))...)), len(wrong))
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		of := wrong[key]
		assert.Fail(c, "the log of a node without faults has", "%d lines like\n%s", len(of),
			strings.Join(of[:min(len(of), 3)], "\n"))
	}
}

package plan_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tables write pods, statuses and actions in a notation of short clauses,
// separated by semicolons.
//
// A pod is its restart policy and its containers:
//
//	Always; init a; sidecar s startup; main m liveness policy=Never rule=3; ephemeral e target=m
//
// A status is its sandboxes and instances, in any order. An instance is
// name#restart-count, by default in the newest sandbox, of the spec's image,
// finished an hour before now after running for a second:
//
//	sandbox 1 ready; sandbox 0 dead; m#1 running; m#0@0 exited code=1 ago=5s ran=20m image=old
//
// Probe results name instances: "s#0 started; m#0 liveness". Actions read like
//
//	kill pod; kill m#0 LivenessProbe; remove m#0; sandbox 1; start m#1; wait s; retry 10s

var now = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

const currentImage, oldImage = "image:new", "image:old"

// clauses splits a text of the notation into clauses of words.
func clauses(text string) [][]string {
	var out [][]string
	for clause := range strings.SplitSeq(text, ";") {
		if words := strings.Fields(clause); len(words) > 0 {
			out = append(out, words)
		}
	}
	return out
}

func parsePod(t require.TestingT, text string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u1"
	for i, words := range clauses(text) {
		if i == 0 {
			pod.Spec.RestartPolicy = v1.RestartPolicy(words[0])
			for _, option := range words[1:] {
				switch option {
				case "host":
					pod.Spec.HostNetwork = true
				case "deleted":
					deleted := metav1.NewTime(now)
					pod.DeletionTimestamp = &deleted
				default:
					require.FailNow(t, "pod option "+option)
				}
			}
			continue
		}
		c := v1.Container{Name: words[1], Image: currentImage}
		target := ""
		for _, option := range words[2:] {
			key, value, _ := strings.Cut(option, "=")
			switch key {
			case "startup":
				c.StartupProbe = &v1.Probe{}
			case "liveness":
				c.LivenessProbe = &v1.Probe{}
			case "policy":
				policy := v1.ContainerRestartPolicy(value)
				c.RestartPolicy = &policy
			case "rule":
				c.RestartPolicyRules = []v1.ContainerRestartRule{{
					Action: v1.ContainerRestartRuleActionRestart,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
						Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
						Values:   []int32{int32(number(t, value))},
					},
				}}
			case "restart-all":
				c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
					Action: v1.ContainerRestartRuleActionRestartAllContainers,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
						Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
						Values:   []int32{int32(number(t, value))},
					},
				})
			case "target":
				target = value
			default:
				require.FailNow(t, "container option "+option)
			}
		}
		switch words[0] {
		case "sidecar":
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			fallthrough
		case "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "main":
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		case "ephemeral":
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: c.Name, Image: c.Image},
				TargetContainerName:      target,
			})
		default:
			require.FailNow(t, "kind of container "+words[0])
		}
	}
	return pod
}

func parseStatus(t require.TestingT, text string) *runtime.PodStatus {
	status := &runtime.PodStatus{}
	var instances [][]string
	for _, words := range clauses(text) {
		if words[0] != "sandbox" {
			instances = append(instances, words)
			continue
		}
		s := runtime.SandboxStatus{IPs: []string{"10.0.0.1"}}
		s.Attempt, s.ID, s.State = uint32(number(t, words[1])), "sb"+words[1], runtime.SandboxNotReady
		if words[2] == "ready" {
			s.State = runtime.SandboxReady
		}
		for _, option := range words[3:] {
			switch option {
			case "host":
				s.HostNetwork, s.IPs = true, nil
			case "no-ip":
				s.IPs = nil
			case "unknown-ip":
				s.IPs, s.AddressUnknown = nil, true
			default:
				require.FailNow(t, "sandbox option "+option)
			}
		}
		status.Sandboxes = append(status.Sandboxes, s)
	}
	slices.SortFunc(status.Sandboxes, func(a, b runtime.SandboxStatus) int { return int(b.Attempt) - int(a.Attempt) })
	for _, words := range instances {
		status.Containers = append(status.Containers, parseInstance(t, words, status))
	}
	slices.SortStableFunc(status.Containers, func(a, b runtime.ContainerStatus) int {
		return int(b.RestartCount) - int(a.RestartCount)
	})
	return status
}

func parseInstance(t require.TestingT, words []string, status *runtime.PodStatus) runtime.ContainerStatus {
	var n runtime.ContainerStatus
	id, attempt, elsewhere := strings.Cut(words[0], "@")
	name, count, ok := strings.Cut(id, "#")
	require.True(t, ok, "instance %q wants the form name#count", id)
	n.ID, n.Name, n.RestartCount = runtime.ContainerID{Type: "test", ID: id}, name, int32(number(t, count))
	if elsewhere {
		n.SandboxID = "sb" + attempt
	} else if len(status.Sandboxes) > 0 {
		n.SandboxID = status.Sandboxes[0].ID
	}
	n.State = runtime.ContainerState(words[1])
	image, ago, ran := currentImage, time.Hour, time.Second
	for _, option := range words[2:] {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "code":
			n.ExitCode = int32(number(t, value))
		case "oom":
			n.Reason = "OOMKilled"
		case "ago":
			ago = duration(t, value)
		case "ran":
			ran = duration(t, value)
		case "image":
			image = map[string]string{"old": oldImage, "unrecorded": ""}[value]
		default:
			require.FailNow(t, "instance option "+option)
		}
	}
	if image != "" {
		n.Hash = podspec.ContainerHash(&v1.Container{Name: name, Image: image})
	}
	switch n.State {
	case runtime.ContainerRunning:
		n.StartedAt = now.Add(-ran)
	case runtime.ContainerExited:
		n.FinishedAt = now.Add(-ago)
		n.StartedAt = n.FinishedAt.Add(-ran)
	}
	return n
}

// probes are probe results in the notation; every clause is "<instance> <result>".
type probes map[string]string

func parseProbes(text string) runtime.ProbeResults {
	if text == "" {
		return nil
	}
	p := probes{}
	for _, words := range clauses(text) {
		p[words[0]] = words[1]
	}
	return p
}

func (probes) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}
func (p probes) Started(id runtime.ContainerID) bool { return p[id.ID] == "started" }
func (p probes) Ready(runtime.ContainerID) bool      { return false }
func (p probes) Unhealthy(id runtime.ContainerID) (runtime.ProbeKind, bool) {
	result := p[id.ID]
	return runtime.ProbeKind(result), result == "liveness" || result == "startup"
}

// transcript writes actions in the notation.
func transcript(a plan.Actions) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if a.KillPod {
		add("kill pod")
	}
	for _, k := range a.Kill {
		add("kill %s %s", k.Container.ID.ID, k.Reason)
	}
	for _, n := range a.Remove {
		add("remove %s", n.ID.ID)
	}
	if a.CreateSandbox {
		add("sandbox %d", a.Attempt)
	}
	for _, s := range a.Start {
		add("start %s#%d", s.Container.Name, s.RestartCount)
	}
	var waiting []string
	for name := range a.Waiting {
		waiting = append(waiting, name)
	}
	slices.Sort(waiting)
	for _, name := range waiting {
		add("wait %s", name)
	}
	if a.RetryAfter != 0 {
		add("retry %s", a.RetryAfter)
	}
	return strings.Join(out, "; ")
}

// planCase is a row of the tables.
type planCase struct {
	name, pod, status, probes string
	want                      string
}

func runCases(t *testing.T, cases []planCase) {
	for _, tc := range cases {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			in := plan.Input{
				Pod:    parsePod(t, tc.pod),
				Status: parseStatus(t, tc.status),
				Probes: parseProbes(tc.probes),
				Now:    now,
			}
			before := *in.Pod.DeepCopy()
			got := plan.Compute(in)
			assert.Equal(t, tc.want, transcript(got))
			assert.Equal(t, before, *in.Pod, "the input was changed")

			// Asking again, with what was learned, gives the same answer.
			in.Crashes = got.Crashes
			assert.Equal(t, tc.want, transcript(plan.Compute(in)), "asked again")
		})
	}
}

func number(t require.TestingT, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func duration(t require.TestingT, s string) time.Duration {
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

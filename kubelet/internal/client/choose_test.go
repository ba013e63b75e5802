package client

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestChoosePod(t *testing.T) {
	web, twin := podtest.Pod(""), podtest.Pod("")
	twin.Namespace = "other"
	exact := podtest.Pod("")
	exact.Name = "web"
	for _, tt := range []struct {
		name, namespace string
		pods            []*v1.Pod
		found           *v1.Pod
		err             string
	}{
		{"web-n1", "default", []*v1.Pod{web, twin}, web, ""},
		{"web", "default", []*v1.Pod{web, twin}, web, ""},
		{"web", "other", []*v1.Pod{web, twin}, twin, ""},
		{"web", "default", []*v1.Pod{web, exact}, exact, ""},
		{"we", "default", []*v1.Pod{twin, web}, nil, `there is no pod "we" in namespace "default"; there are default/web-n1, other/web-n1`},
		{"web", "default", nil, nil, "the agent has no pods"},
		{"web", "default", []*v1.Pod{web, web}, nil, "means more than one pod: default/web-n1 with UID , default/web-n1 with UID"},
	} {
		got, err := choosePod(tt.pods, tt.namespace, tt.name)
		assert.Same(t, tt.found, got)
		if tt.err != "" {
			assert.ErrorContains(t, err, tt.err)
		}
	}
}

// Each command that takes a pod takes its namespace with it.
func TestEveryCommandTakesTheNamespaceWithThePod(t *testing.T) {
	pod := podtest.Pod(v1.PodRunning, podtest.Running("a", true))
	pod.Namespace, pod.UID = "team-a", "u1"
	root := answering(t, map[string]any{"/pods": v1.PodList{Items: []v1.Pod{*pod}}})
	some := 0
	for _, cmd := range newRoot(Env{}).Commands() {
		args := []string{"team-a/web"}
		switch name := cmd.Name(); {
		case name == "cp":
			args = []string{"team-a/web:/x", t.TempDir()}
		case name == "exec":
			args = []string{"team-a/web", "--", "ls"}
		case name == "port-forward":
			args = []string{"team-a/web", ":80"}
		case name != "pods" && name != "events" && !strings.Contains(cmd.Use, " POD"):
			continue
		}
		some++
		command := append([]string{cmd.Name(), "--root-dir", root}, args...)
		if err := runCommand(t.Context(), command, &strings.Builder{}, &strings.Builder{}); err != nil {
			assert.NotErrorIs(t, err, errNoPod, command)
			assert.NotContains(t, err.Error(), "want ", command)
		}
		for i, arg := range command {
			command[i] = strings.TrimPrefix(arg, "team-a/")
		}
		assert.ErrorContains(t, runCommand(t.Context(), command, &strings.Builder{}, &strings.Builder{}),
			`there is no pod "web" in namespace "default"`, command)
	}
	assert.Equal(t, 12, some)
}

func TestChooseContainer(t *testing.T) {
	p := podtest.Pod("")
	c, note, err := chooseContainer(p, "")
	assert.NoError(t, err)
	assert.Equal(t, "a", c)
	assert.Equal(t, "Container a is used; -c names another: b, setup, proxy.", note)
	c, note, err = chooseContainer(p, "setup")
	assert.NoError(t, err)
	assert.Equal(t, "setup", c+note)
	_, _, err = chooseContainer(p, "x")
	assert.ErrorContains(t, err, `pod default/web-n1 has no container "x"; it has a, b, setup, proxy`)
	p.Annotations = map[string]string{defaultContainerAnnotation: "b"}
	c, note, _ = chooseContainer(p, "")
	assert.Equal(t, "b", c+note)
	c, note, _ = chooseContainer(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "only"}}}}, "")
	assert.Equal(t, "only", c+note)
}

// Of two pods of one name the successor is meant, unless the UID is given. A UID is
// enough in any namespace.
func TestChoosePodAmongPredecessors(t *testing.T) {
	old, new := podtest.Pod(""), podtest.Pod("")
	old.UID, new.UID = "old", "new"
	now := metav1.NewTime(podtest.Noon)
	old.DeletionTimestamp = &now
	pods := []*v1.Pod{new, old}
	for name, want := range map[string]*v1.Pod{"web": new, "web-n1": new, "old": old, "new": new} {
		got, err := choosePod(pods, "default", name)
		assert.NoError(t, err)
		assert.Same(t, want, got, name)
	}
	got, err := choosePod(pods, "other", "old")
	assert.NoError(t, err)
	assert.Same(t, old, got)
	got, err = choosePod(pods[1:], "default", "web")
	assert.NoError(t, err)
	assert.Same(t, old, got, "it is the only one")
}

func TestDescribe(t *testing.T) {
	p := podtest.Pod(v1.PodRunning, podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true),
		podtest.Restarted(podtest.Waiting("a", "CrashLoopBackOff", "back-off 10s"), 2, time.Minute),
		podtest.Running("b", true))
	p.Status.ContainerStatuses[0].AllocatedResourcesStatus = []v1.ResourceStatus{{Name: "example.com/port",
		Resources: []v1.ResourceHealth{
			{ResourceID: "line-1", Health: v1.ResourceHealthStatusHealthy}, {ResourceID: "line-2", Health: v1.ResourceHealthStatusUnhealthy},
		}}}
	p.Spec.Volumes = []v1.Volume{{Name: "v",
		VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x"}}}}
	text := strings.Join(strings.Fields(describe(&known{pod: p}, podtest.Noon, 0)), " ")
	for _, want := range []string{
		"Name: web-n1", "Status: CrashLoopBackOff", "Init Containers: setup:",
		"State: Waiting Reason: CrashLoopBackOff Message: back-off 10s Last State: Terminated",
		"Finished: 2026-01-02T11:59:00Z (60s ago)", "Restart Count: 2", "v: hostPath /x",
		"Devices of example.com/port: line-1, line-2 (Unhealthy) State:",
	} {
		assert.Contains(t, text, want)
	}
}

func TestDescribeEvents(t *testing.T) {
	p := podtest.Pod(v1.PodRunning)
	at := func(d time.Duration) time.Time { return podtest.Ago(d).Time }
	events := []runtime.Event{
		{Type: "Normal", Reason: "Pulled", Message: "Image is there", FieldPath: "spec.containers{a}", Count: 1, First: at(time.Minute), Last: at(time.Minute)},
		{Type: "Warning", Reason: "FailedCreatePodSandBox", Message: "no\nroute", Count: 4, First: at(time.Hour), Last: at(2 * time.Second)},
	}
	_, table, _ := strings.Cut(describe(&known{pod: p, events: events}, podtest.Noon, 0), "\nEvents:\n")
	assert.Equal(t, strings.Join([]string{
		"  Type      Reason                   Age                Container   Message",
		"  Normal    Pulled                   60s                a           Image is there",
		"  Warning   FailedCreatePodSandBox   2s (x4 over 60m)   -           no route",
		"",
	}, "\n"), table)
	assert.Contains(t, describe(&known{pod: p}, podtest.Noon, 0), "\nEvents:")
	assert.Contains(t, strings.Join(strings.Fields(describe(&known{pod: p}, podtest.Noon, 0)), " "), " Events: <none>")
}

func TestDescribeHistory(t *testing.T) {
	at := func(d time.Duration) time.Time { return podtest.Ago(d).Time }
	exited := runtime.Record{Stage: runtime.StageSeen, Source: runtime.SourceRelist, Kind: runtime.KindContainerExited,
		Container: "a", ExitCode: 1, Duration: 3 * time.Second}
	past := make([]history.Entry, described)
	for i := range past {
		past[i] = history.Entry{Record: exited, Count: 1, First: at(time.Hour), Last: at(time.Hour)}
	}
	past = append(past, history.Entry{Record: exited, Count: 35, First: at(time.Hour), Last: at(2 * time.Second)})
	_, lines, _ := strings.Cut(describe(&known{pod: podtest.Pod(v1.PodRunning), past: past}, podtest.Noon, 0),
		"\nHistory:")
	assert.True(t, strings.HasPrefix(lines, " (1 earlier lines with the command history)\n"+
		"  TIME       STAGE          WHAT\n"+
		"  11:59:58   seen by list   Container a exited with code 1 after 3s (35 times in 59m)\n"+
		"  11:00:00   seen by list   Container a exited with code 1 after 3s\n"), lines)
}

func TestDescribeAPodThatEnds(t *testing.T) {
	p := podtest.Pod(v1.PodRunning)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(podtest.Ago(-20*time.Second)), new(int64(30))
	text := strings.Join(strings.Fields(describe(&known{pod: p}, podtest.Noon, 0)), " ")
	assert.Contains(t, text, "Grace Period: 30s, ends 2026-01-02T12:00:20Z")
	assert.Contains(t, text, "Status: Terminating")

	p = podtest.Pod(v1.PodSucceeded)
	text = strings.Join(
		strings.Fields(describe(&known{pod: p, gone: &recent.Gone{Pod: p, At: podtest.Ago(time.Hour).Time}},
			podtest.Noon, 0)), " ")
	assert.Contains(t, text, "Gone Since: 2026-01-02T11:00:00Z (60m ago)")
	assert.Contains(t, text, "Status: Succeeded")
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func running(name string, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: ready, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func waiting(name, reason, message string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func ended(name, reason string, code, signal int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}}
}

// restarted adds restarts, the last of them some time ago.
func restarted(s v1.ContainerStatus, n int32, since time.Duration) v1.ContainerStatus {
	s.RestartCount = n
	s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: ago(since)}
	return s
}

// pod has two main containers, an init container "setup" and a sidecar "proxy", each
// with a status if that is given.
func pod(phase v1.PodPhase, statuses ...v1.ContainerStatus) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n1"},
		Spec: v1.PodSpec{
			NodeName:       "N1",
			InitContainers: []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
			Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
		},
		Status: v1.PodStatus{Phase: phase, StartTime: new(ago(90 * time.Second))},
	}
	for _, s := range statuses {
		if s.Name == "setup" || s.Name == "proxy" {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
		} else {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
	}
	return p
}

func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(p); return p }

func condition(kind v1.PodConditionType) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue})
	}
}

func TestRows(t *testing.T) {
	setup, proxy := ended("setup", "Completed", 0, 0), running("proxy", true)
	for _, tt := range []struct {
		name string
		pod  *v1.Pod
		want string // READY STATUS RESTARTS
	}{
		{"nothing is known", with(pod(""), func(p *v1.Pod) { p.Status = v1.PodStatus{} }), "0/3 Pending 0"},
		{"pending", pod(v1.PodPending), "0/3 Pending 0"},
		{"an init container runs", pod(v1.PodPending, running("setup", false)), "0/3 Init:0/2 0"},
		{"the first is done", pod(v1.PodPending, setup, waiting("proxy", "PodInitializing", "")), "0/3 Init:1/2 0"},
		{"an image is missing", pod(v1.PodPending, waiting("setup", "ErrImagePull", "no route")), "0/3 Init:ErrImagePull 0"},
		{"init fails", pod(v1.PodPending, restarted(ended("setup", "Error", 1, 0), 2, time.Minute)), "0/3 Init:Error 2 (60s ago)"},
		{"init fails without a reason", pod(v1.PodPending, ended("setup", "", 3, 0)), "0/3 Init:ExitCode:3 0"},
		{"init is killed", pod(v1.PodPending, ended("setup", "", 137, 9)), "0/3 Init:Signal:9 0"},
		{"main containers are made", pod(v1.PodPending, setup, proxy, waiting("a", "ContainerCreating", ""), waiting("b", "ContainerCreating", "")), "1/3 ContainerCreating 0"},
		{"all run", pod(v1.PodRunning, setup, proxy, running("a", true), running("b", true)), "3/3 Running 0"},
		{"one is not ready", pod(v1.PodRunning, setup, proxy, running("a", true), running("b", false)), "2/3 Running 0"},
		{"restarts of setup do not count any more", pod(v1.PodRunning, restarted(setup, 4, time.Hour), restarted(proxy, 1, time.Hour), restarted(running("a", true), 2, 3*time.Minute), running("b", true)), "3/3 Running 3 (3m ago)"},
		{"crash loop", pod(v1.PodRunning, setup, proxy, running("a", true), restarted(waiting("b", "CrashLoopBackOff", "back-off 10s"), 5, 7*time.Second)), "2/3 CrashLoopBackOff 5 (7s ago)"},
		{"the first of several", pod(v1.PodRunning, setup, proxy, waiting("a", "ErrImagePull", ""), waiting("b", "CrashLoopBackOff", "")), "1/3 ErrImagePull 0"},
		{"one has ended, and the rest is ready", with(pod(v1.PodRunning, setup, proxy, ended("a", "Completed", 0, 0), running("b", true)), condition(v1.PodReady)), "2/3 Running 0"},
		{"one has ended, and the pod is not ready", pod(v1.PodRunning, setup, proxy, ended("a", "Completed", 0, 0), running("b", true)), "2/3 NotReady 0"},
		{"done", pod(v1.PodSucceeded, setup, ended("proxy", "Completed", 0, 0), ended("a", "Completed", 0, 0), ended("b", "Completed", 0, 0)), "0/3 Completed 0"},
		{"one has failed", pod(v1.PodFailed, setup, proxy, ended("a", "Completed", 0, 0), ended("b", "OOMKilled", 137, 0)), "1/3 OOMKilled 0"},
		{"killed", pod(v1.PodFailed, setup, proxy, ended("a", "", 143, 15), ended("b", "", 1, 0)), "1/3 Signal:15 0"},
		{"evicted", with(pod(v1.PodFailed), func(p *v1.Pod) { p.Status.Reason = "Evicted" }), "0/3 Evicted 0"},
		{"terminating", with(pod(v1.PodRunning, setup, proxy, running("a", true), running("b", true)), func(p *v1.Pod) { p.DeletionTimestamp = new(ago(0)) }), "3/3 Terminating 0"},
		{"what has ended does not terminate", with(pod(v1.PodSucceeded), func(p *v1.Pod) { p.DeletionTimestamp = new(ago(0)) }), "0/3 Succeeded 0"},
		{"initialized before, and init runs again", with(pod(v1.PodRunning, running("setup", false), proxy, running("a", true), running("b", true)), condition(v1.PodInitialized)), "2/3 Init:0/2 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rowOf(tt.pod, noon)
			assert.Equal(t, tt.want, strings.Join([]string{r.Ready, r.Status, r.Restarts}, " "))
		})
	}
}

func TestTable(t *testing.T) {
	one, other := pod(v1.PodRunning), pod(v1.PodPending)
	one.Status.PodIP = "10.0.0.7"
	other.Namespace, other.Status.StartTime, other.CreationTimestamp = "a", nil, ago(time.Hour)
	third := pod(v1.PodPending)
	third.Name, third.Status.StartTime = "db-n1", nil
	assert.Equal(t, strings.Join([]string{
		"NAMESPACE   NAME     READY   STATUS    RESTARTS   AGE         IP",
		"a           web-n1   0/3     Pending   0          60m         <none>",
		"default     db-n1    0/3     Pending   0          <unknown>   <none>",
		"default     web-n1   0/3     Running   0          90s         10.0.0.7",
		"",
	}, "\n"), table(rowsOf([]*v1.Pod{one, other, third}, noon)))
}

func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		name        string
		before, now outline
		want        string // "" for none
	}{
		{"nothing", outline{"Running", 1, 1, 0, ""}, outline{"Running", 1, 1, 0, ""}, ""},
		{"a message alone", outline{"CrashLoopBackOff", 0, 1, 1, "10s"}, outline{"CrashLoopBackOff", 0, 1, 1, "9s"}, ""},
		{"another status", outline{"Pending", 0, 1, 0, ""}, outline{"Running", 1, 1, 0, ""}, "x: Pending → Running (1/1)"},
		{"ready", outline{"Running", 0, 1, 0, ""}, outline{"Running", 1, 1, 0, ""}, "x: Running (1/1)"},
		{"a restart", outline{"Error", 0, 1, 1, ""}, outline{"Running", 1, 1, 2, ""}, "x: Error → Running (1/1), restarts: 2"},
		{"why", outline{"Pending", 0, 1, 0, ""}, outline{"ErrImagePull", 0, 1, 0, "no\n route "}, "x: Pending → ErrImagePull (0/1): no route"},
	} {
		got := changes(map[string]outline{"x": tt.before}, map[string]outline{"x": tt.now})
		assert.Equal(t, tt.want, strings.Join(got, "\n"), tt.name)
	}
	assert.Equal(t, []string{"a: Running → gone", "b: Pending (0/2)", "c: Running (1/1), restarts: 3"}, changes(
		map[string]outline{"a": {"Running", 1, 1, 0, ""}},
		map[string]outline{"c": {"Running", 1, 1, 3, ""}, "b": {"Pending", 0, 2, 0, ""}}))
}

func TestLinesTellWhatChanged(t *testing.T) {
	var out strings.Builder
	draw := lines(&out)
	draw([]*v1.Pod{pod(v1.PodPending)})
	draw([]*v1.Pod{pod(v1.PodPending)})
	draw([]*v1.Pod{pod(v1.PodRunning)})
	draw(nil)
	assert.Equal(t, "default/web-n1: Pending (0/3)\ndefault/web-n1: Pending → Running (0/3)\ndefault/web-n1: Running → gone\n", out.String())
}

func TestChoosePod(t *testing.T) {
	web, twin := pod(""), pod("")
	twin.Namespace = "other"
	exact := pod("")
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

func TestChooseContainer(t *testing.T) {
	p := pod("")
	c, note, err := chooseContainer(p, "")
	assert.NoError(t, err)
	assert.Equal(t, "a", c)
	assert.Equal(t, `Container "a" is taken out of a, b, setup, proxy; name another with -c.`, note)
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

func TestDescribe(t *testing.T) {
	p := pod(v1.PodRunning, ended("setup", "Completed", 0, 0), running("proxy", true),
		restarted(waiting("a", "CrashLoopBackOff", "back-off 10s"), 2, time.Minute), running("b", true))
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x"}}}}
	text := strings.Join(strings.Fields(describe(p, noon)), " ")
	for _, want := range []string{
		"Name: web-n1", "Status: CrashLoopBackOff", "Init Containers: setup:", "State: Waiting Reason: CrashLoopBackOff Message: back-off 10s Last State: Terminated",
		"Finished: 2026-01-02T11:59:00Z (60s ago)", "Restart Count: 2", "v: hostPath /x",
	} {
		assert.Contains(t, text, want)
	}
}

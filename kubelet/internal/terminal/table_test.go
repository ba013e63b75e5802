package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
)

func TestRows(t *testing.T) {
	setup, proxy := podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true)
	for _, tt := range []struct {
		name string
		pod  *v1.Pod
		want string // READY STATUS RESTARTS
	}{
		{"nothing is known", podtest.With(podtest.Pod(""), func(p *v1.Pod) { p.Status = v1.PodStatus{} }), "0/3 Pending 0"},
		{"pending", podtest.Pod(v1.PodPending), "0/3 Pending 0"},
		{"an init container runs", podtest.Pod(v1.PodPending, podtest.Running("setup", false)), "0/3 Init:0/2 0"},
		{"the first is done", podtest.Pod(v1.PodPending, setup, podtest.Waiting("proxy", "PodInitializing", "")), "0/3 Init:1/2 0"},
		{"an image is missing", podtest.Pod(v1.PodPending, podtest.Waiting("setup", "ErrImagePull", "no route")), "0/3 Init:ErrImagePull 0"},
		{"init fails", podtest.Pod(v1.PodPending, podtest.Restarted(podtest.Ended("setup", "Error", 1, 0), 2, time.Minute)), "0/3 Init:Error 2 (60s ago)"},
		{"init fails without a reason", podtest.Pod(v1.PodPending, podtest.Ended("setup", "", 3, 0)), "0/3 Init:ExitCode:3 0"},
		{"init is killed", podtest.Pod(v1.PodPending, podtest.Ended("setup", "", 137, 9)), "0/3 Init:Signal:9 0"},
		{"main containers are made", podtest.Pod(v1.PodPending, setup, proxy, podtest.Waiting("a", "ContainerCreating", ""), podtest.Waiting("b", "ContainerCreating", "")), "1/3 ContainerCreating 0"},
		{"all run", podtest.Pod(v1.PodRunning, setup, proxy, podtest.Running("a", true), podtest.Running("b", true)), "3/3 Running 0"},
		{"one is not ready", podtest.Pod(v1.PodRunning, setup, proxy, podtest.Running("a", true), podtest.Running("b", false)), "2/3 Running 0"},
		{"restarts of setup do not count any more", podtest.Pod(v1.PodRunning, podtest.Restarted(setup, 4, time.Hour), podtest.Restarted(proxy, 1, time.Hour), podtest.Restarted(podtest.Running("a", true), 2, 3*time.Minute), podtest.Running("b", true)), "3/3 Running 3 (3m ago)"},
		{"crash loop", podtest.Pod(v1.PodRunning, setup, proxy, podtest.Running("a", true), podtest.Restarted(podtest.Waiting("b", "CrashLoopBackOff", "back-off 10s"), 5, 7*time.Second)), "2/3 CrashLoopBackOff 5 (7s ago)"},
		{"the first of several", podtest.Pod(v1.PodRunning, setup, proxy, podtest.Waiting("a", "ErrImagePull", ""), podtest.Waiting("b", "CrashLoopBackOff", "")), "1/3 ErrImagePull 0"},
		{"one has ended, and the rest is ready", podtest.With(podtest.Pod(v1.PodRunning, setup, proxy, podtest.Ended("a", "Completed", 0, 0), podtest.Running("b", true)), podtest.Condition(v1.PodReady)), "2/3 Running 0"},
		{"one has ended, and the pod is not ready", podtest.Pod(v1.PodRunning, setup, proxy, podtest.Ended("a", "Completed", 0, 0), podtest.Running("b", true)), "2/3 NotReady 0"},
		{"done", podtest.Pod(v1.PodSucceeded, setup, podtest.Ended("proxy", "Completed", 0, 0), podtest.Ended("a", "Completed", 0, 0), podtest.Ended("b", "Completed", 0, 0)), "0/3 Completed 0"},
		{"one has failed", podtest.Pod(v1.PodFailed, setup, proxy, podtest.Ended("a", "Completed", 0, 0), podtest.Ended("b", "OOMKilled", 137, 0)), "1/3 OOMKilled 0"},
		{"killed", podtest.Pod(v1.PodFailed, setup, proxy, podtest.Ended("a", "", 143, 15), podtest.Ended("b", "", 1, 0)), "1/3 Signal:15 0"},
		{"evicted", podtest.With(podtest.Pod(v1.PodFailed), func(p *v1.Pod) { p.Status.Reason = "Evicted" }), "0/3 Evicted 0"},
		{"terminating", podtest.With(podtest.Pod(v1.PodRunning, setup, proxy, podtest.Running("a", true), podtest.Running("b", true)), func(p *v1.Pod) { p.DeletionTimestamp = new(podtest.Ago(0)) }), "3/3 Terminating 0"},
		{"what has ended does not terminate", podtest.With(podtest.Pod(v1.PodSucceeded), func(p *v1.Pod) { p.DeletionTimestamp = new(podtest.Ago(0)) }), "0/3 Succeeded 0"},
		{"initialized before, and init runs again", podtest.With(podtest.Pod(v1.PodRunning, podtest.Running("setup", false), proxy, podtest.Running("a", true), podtest.Running("b", true)), podtest.Condition(v1.PodInitialized)), "2/3 Init:0/2 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rowOf(tt.pod, podtest.Noon)
			assert.Equal(t, tt.want, strings.Join([]string{r.Ready, r.Status, r.Restarts}, " "))
		})
	}
}

func TestTable(t *testing.T) {
	one, other := podtest.Pod(v1.PodRunning), podtest.Pod(v1.PodPending)
	one.Status.PodIP = "10.0.0.7"
	other.Namespace, other.Status.StartTime, other.CreationTimestamp = "a", nil, podtest.Ago(time.Hour)
	third := podtest.Pod(v1.PodPending)
	third.Name, third.Status.StartTime = "db-n1", nil
	assert.Equal(t, strings.Join([]string{
		"NAMESPACE   NAME     READY   STATUS    RESTARTS   AGE         IP",
		"a           web-n1   0/3     Pending   0          60m         <none>",
		"default     db-n1    0/3     Pending   0          <unknown>   <none>",
		"default     web-n1   0/3     Running   0          90s         10.0.0.7",
		"",
	}, "\n"), PodTable([]*v1.Pod{one, other, third}, podtest.Noon))
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

func TestLinesForChanges(t *testing.T) {
	var out strings.Builder
	draw := lines(&out)
	draw(nil, []*v1.Pod{podtest.Pod(v1.PodPending)})
	draw(nil, []*v1.Pod{podtest.Pod(v1.PodPending)})
	draw(nil, []*v1.Pod{podtest.Pod(v1.PodRunning)})
	draw(nil, nil)
	assert.Equal(t, "default/web-n1: Pending (0/3)\ndefault/web-n1: Pending → Running (0/3)\ndefault/web-n1: "+
		"Running → gone\n", out.String())
}

// Of the pods that have not changed, nothing is read and nothing is written.
func TestLinesForThePodsThatChanged(t *testing.T) {
	named := func(name string, phase v1.PodPhase) *v1.Pod {
		pod := podtest.Pod(phase)
		pod.Name = name
		return pod
	}
	ending := named("a", v1.PodRunning)
	ending.DeletionTimestamp = &metav1.Time{Time: podtest.Noon}
	a, b := types.NamespacedName{Namespace: "default", Name: "a"}, types.NamespacedName{Namespace: "default", Name: "b"}
	var out strings.Builder
	draw := lines(&out)
	want := func(lines ...string) {
		t.Helper()
		assert.Equal(t, strings.Join(lines, "\n"), strings.TrimSuffix(out.String(), "\n"))
		out.Reset()
	}
	draw(nil, []*v1.Pod{named("a", v1.PodRunning), named("b", v1.PodRunning)})
	want("default/a: Running (0/3)", "default/b: Running (0/3)")
	draw(Names{a: true}, []*v1.Pod{ending, named("a", v1.PodPending)})
	want("default/a (predecessor): Terminating (0/3)", "default/a: Running → Pending (0/3)")
	draw(Names{a: true}, []*v1.Pod{named("a", v1.PodRunning)})
	want("default/a (predecessor): Terminating → gone", "default/a: Pending → Running (0/3)")
	draw(Names{b: true}, nil)
	want("default/b: Running → gone")
	draw(nil, []*v1.Pod{named("a", v1.PodRunning)})
	want("")
}

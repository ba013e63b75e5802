package syncloop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

var podworkersTerminated = podworkers.State{Phase: podworkers.PhaseTerminated}

func TestAnUpdateThatIsNotAppliedCausesAnEvent(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	base := func() *v1.Pod {
		pod := makePod("web")
		pod.Spec.Containers = []v1.Container{{Name: "main", Image: "app:1", Command: []string{"serve"}},
			{Name: "log", Image: "log:1"}}
		pod.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "app:1"},
			{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}}
		return pod
	}
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		fields string
	}{
		"nothing":                 {func(*v1.Pod) {}, ""},
		"labels":                  {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, ""},
		"image":                   {func(p *v1.Pod) { p.Spec.Containers[0].Image = "app:2" }, ""},
		"image and command":       {func(p *v1.Pod) { p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = "app:2", nil }, ""},
		"probe":                   {func(p *v1.Pod) { p.Spec.Containers[0].LivenessProbe = &v1.Probe{PeriodSeconds: 1} }, ""},
		"a container more":        {func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "new"}) }, ""},
		"a container less":        {func(p *v1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, ""},
		"deadline":                {func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64) }, ""},
		"an init container's env": {func(p *v1.Pod) { p.Spec.InitContainers[0].Env = []v1.EnvVar{{Name: "A"}} }, ""},
		"command":                 {func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"sleep"} }, "spec.containers{main}.command"},
		"empty for nil":           {func(p *v1.Pod) { p.Spec.Containers[0].Args = []string{} }, ""},
		"a sidecar's env and args": {func(p *v1.Pod) {
			p.Spec.InitContainers[1].Env, p.Spec.InitContainers[1].Args = []v1.EnvVar{{Name: "A"}}, []string{"x"}
		}, "spec.initContainers{proxy}.args, spec.initContainers{proxy}.env"},
		"host name and a port": {func(p *v1.Pod) {
			p.Spec.Hostname, p.Spec.Containers[1].Ports = "h", []v1.ContainerPort{{ContainerPort: 1}}
		}, "spec.hostname, spec.containers{log}.ports"},
		"a new sandbox": {func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.Containers[0].Command = true, nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []runtime.Event
			b := newHandler(t, syncloop.HandlerOptions{Observer: runtime.Observer{NonBlocking: true,
				Event: func(e runtime.Event) { got = append(got, e) }}})
			updated := base()
			tc.change(updated)
			b.HandlePodAdditions([]*v1.Pod{base()})
			b.HandlePodUpdates([]*v1.Pod{updated})
			assert.Equal(t, []string{"create web", "change web"}, b.workers.take())
			if tc.fields == "" {
				assert.Empty(t, got)
				return
			}
			if assert.Len(t, got, 1) {
				assert.Equal(t, "UpdateNotApplied", got[0].Reason)
				assert.Contains(t, got[0].Message, ": "+tc.fields+";")
				assert.Equal(t, runtime.RefOf(updated), got[0].Pod)
			}
		})
	}
}

func TestAnUpdatedPodIsMadeAnew(t *testing.T) {
	var events []string
	b := newHandler(t, syncloop.HandlerOptions{RecreateUpdated: true,
		Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e.Reason) }}})
	old, updated := makePod("web"), makePod("web")
	updated.Spec.Containers[0].Command = []string{"sleep"}
	b.HandlePodAdditions([]*v1.Pod{old})
	b.HandlePodUpdates([]*v1.Pod{updated})
	assert.Equal(t, []string{"create web", "kill web", "create web"}, b.workers.take())
	assert.Equal(t, []string{"RecreatingPod"}, events)

	b.workers.states[old.UID] = podworkers.State{Phase: podworkers.PhaseTerminating, TerminatingAt: time.Now()}
	b.HandlePodUpdates([]*v1.Pod{old})
	assert.Equal(t, []string{"change web"}, b.workers.take(), "the next one has not begun yet")

	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure} {
		job, changed := makePod(string(policy)), makePod(string(policy))
		job.Spec.RestartPolicy, changed.Spec.RestartPolicy = policy, policy
		changed.Spec.Containers[0].Command = []string{"sleep"}
		b.HandlePodAdditions([]*v1.Pod{job})
		b.HandlePodUpdates([]*v1.Pod{changed})
		assert.Equal(t, []string{"create " + job.Name, "change " + job.Name}, b.workers.take(),
			"its containers might not start again")
	}
}

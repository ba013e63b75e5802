package status_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// restartAllPod has a main container "w" that has all containers restarted when it exits with 42.
func restartAllPod(containers ...string) *v1.Pod {
	pod := podOf(v1.RestartPolicyNever, append(containers, "w")...)
	w := &pod.Spec.Containers[len(pod.Spec.Containers)-1]
	w.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	w.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
			Values: []int32{42}},
	}}
	return pod
}

// Phases, conditions and counts while all containers are restarted are kubelet's.
func TestRestartAllContainers(t *testing.T) {
	const (
		conditions = `
			PodReadyToStartContainers=True@0
			Initialized=True@0
			Ready=False@9 (ContainersNotReady: containers with unready status: [app w])
			ContainersReady=False@9 (ContainersNotReady: containers with unready status: [app w])
			PodScheduled=True@0`
		removed = "waiting RestartingAllContainers, was exit137@--- RestartingAllContainers"
	)
	pod := restartAllPod("init:i", "app")
	var prev *v1.PodStatus
	for i, s := range []step{
		{now: 0, runtime: observe("10.0.0.1", "app/a running@0", "w/w running@0", "i/i exit0@0-0"), want: `
			Running 10.0.0.1 since -1
			PodReadyToStartContainers=True@0
			Initialized=True@0
			Ready=True@0
			ContainersReady=True@0
			PodScheduled=True@0
			AllContainersRestarting=False@0
			i[i]: exit0@0-0 Completed, restarts 0, ready
			app[a]: running@0, restarts 0, started, ready
			w[w]: running@0, restarts 0, started, ready`},
		{now: 8, runtime: observe("10.0.0.1", "app/a running@0", "w/w exit42@0-8", "i/i exit0@0-0"), want: `
			Running 10.0.0.1 since -1
			PodReadyToStartContainers=True@0
			Initialized=True@0
			Ready=False@8 (ContainersNotReady: containers with unready status: [w])
			ContainersReady=False@8 (ContainersNotReady: containers with unready status: [w])
			PodScheduled=True@0
			AllContainersRestarting=True@8 (RestartAllContainersStarted: container exited with restart policy rule)
			i[i]: exit0@0-0 Completed, restarts 0, ready
			app[a]: running@0, restarts 0, started, ready
			w[w]: exit42@0-8 Error, restarts 0`},
		{now: 9, runtime: observe("10.0.0.1", "app/a exit137@0-9", "w/w exit42@0-8", "i/i exit0@0-0"), want: `
			Running 10.0.0.1 since -1` + strings.ReplaceAll(conditions, "@9", "@8") + `
			AllContainersRestarting=True@8 (RestartAllContainersStarted: container exited with restart policy rule)
			i[i]: exit0@0-0 Completed, restarts 0, ready
			app[a]: exit137@0-9 Error, restarts 0
			w[w]: exit42@0-8 Error, restarts 0`},
		{now: 10, runtime: observe("10.0.0.1", "w/w exit42@0-8"), waiting: map[string]v1.ContainerStateWaiting{"w": {Reason: "CrashLoopBackOff"}}, want: `
			Running 10.0.0.1 since -1` + strings.ReplaceAll(conditions, "@9", "@8") + `
			AllContainersRestarting=True@8 (RestartAllContainersStarted: container exited with restart policy rule)
			i[]: ` + removed + `, restarts 1
			app[]: ` + removed + `, restarts 1
			w[w]: waiting CrashLoopBackOff, was exit42@0-8 Error, restarts 0`},
		{now: 11, runtime: observe("10.0.0.1"), want: `
			Running 10.0.0.1 since -1` + strings.ReplaceAll(conditions, "@9", "@8") + `
			AllContainersRestarting=False@11
			i[]: ` + removed + `, restarts 1
			app[]: ` + removed + `, restarts 1
			w[w]: waiting CrashLoopBackOff, was exit42@0-8 Error, restarts 0`},
	} {
		in := status.Input{Pod: pod, Runtime: s.runtime, Previous: prev, Waiting: s.waiting, Now: at(s.now)}
		got := status.Generate(in)
		checkLines(t, i, s.want, render(got))
		prev = &got
	}
}

// Neither an init container that was killed for the restart nor main containers that have finished make the phase
// final.
func TestPhaseWhileAllContainersRestart(t *testing.T) {
	pod := restartAllPod("init:i", "app")
	for name, tc := range map[string]struct {
		observed *runtime.PodStatus
		want     v1.PodPhase
	}{
		"an init container was killed": {observe("10.0.0.1", "i/i exit137@0-1", "w/w exit42@0-1"), v1.PodRunning},
		"all others have succeeded":    {observe("10.0.0.1", "i/i exit0@0-1", "app/a exit0@1-2", "w/w exit42@0-1"), v1.PodRunning},
		"all have ended otherwise":     {observe("10.0.0.1", "i/i exit0@0-1", "app/a exit0@1-2", "w/w exit0@0-1"), v1.PodSucceeded},
		"one has failed":               {observe("10.0.0.1", "i/i exit0@0-1", "app/a exit0@1-2", "w/w exit41@0-1"), v1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			got := status.Generate(status.Input{Pod: pod, Runtime: tc.observed,
				Previous: &v1.PodStatus{Phase: v1.PodRunning}, Now: at(3)})
			assert.Equal(t, tc.want, got.Phase)
		})
	}
	stopped := status.Generate(status.Input{Pod: pod, Runtime: observe("", "app/a exit0@1-2", "w/w exit42@0-1"),
		Terminated: true, Now: at(3)})
	assert.Equal(t, v1.PodFailed, stopped.Phase)
	for _, c := range stopped.Conditions {
		if c.Type == v1.AllContainersRestarting {
			assert.Equal(t, v1.ConditionFalse, c.Status)
			assert.Equal(t, "PodFailed", c.Reason)
		}
	}
}

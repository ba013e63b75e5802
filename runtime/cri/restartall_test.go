package cri_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// restartAllPod has a container "b" that has all containers restarted when it exits with 42.
func restartAllPod() *v1.Pod {
	pod := podOf("a", "b")
	testpod.Restart(v1.RestartPolicyNever)(pod)
	pod.Spec.InitContainers = []v1.Container{containerNamed("i")}
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
	b := &pod.Spec.Containers[1]
	b.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	b.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
			Values: []int32{42}},
	}}
	return pod
}

// up syncs a pod until its main containers run.
func (s *syncer) up(svc *service) {
	s.t.Helper()
	s.mustSync()
	svc.exit("i", 0)
	s.mustSync()
	require.Len(s.t, s.status().Containers, 3)
	svc.calls()
}

// A container that exits with the code has all containers of the pod stopped and removed, itself last. Then the pod
// starts anew in its sandbox, beginning with the init containers; logs stay, and restarts count on.
func TestRestartAllContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, "app:1")
		s := newSyncer(t, svc.client(cri.Options{}), restartAllPod())
		s.up(svc)
		logs := func(name string) []string {
			entries, err := os.ReadDir(filepath.Join(s.dir, "logs", "default_web_uid-1", name))
			require.NoError(t, err)
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			return names
		}
		for _, name := range []string{"i", "a", "b"} { // which a real runtime writes
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "logs", "default_web_uid-1", name, "0.log"), nil,
				0o600))
		}
		ids := map[string]string{}
		for _, name := range []string{"i", "a", "b"} {
			ids[name] = svc.newest(name).ID.ID
		}

		svc.exit("b", 42)
		before := len(s.eventLines())
		res := s.mustSync()
		assert.Equal(t, []string{
			"StopContainer a 2", "RemoveContainer " + ids["a"], "RemoveContainer " + ids["i"],
			"RemoveContainer " + ids["b"],
		}, svc.calls(), "no preStop hook, as in kubelet")
		assert.True(t, res.Changed)
		assert.Equal(t, time.Nanosecond, res.RetryAfter, "at once")
		assert.Equal(t, []string{"spec.containers{a} Killing: Container a is restarted with all others, because " +
			"container b has exited"}, s.eventLines()[before:])
		assert.Empty(t, s.status().Containers)
		assert.Equal(t, []string{"0.log"}, logs("a"))

		s.mustSync()
		assert.Equal(t, []string{"CreateContainer i/1", "StartContainer i"}, svc.calls())
		svc.exit("i", 0)
		s.mustSync()
		assert.Equal(t, []string{"CreateContainer a/1", "StartContainer a", "CreateContainer b/1", "StartContainer b"},
			svc.calls())
		assert.Len(t, s.status().Sandboxes, 1)
		assert.Equal(t, int32(1), s.status().Newest("b").RestartCount)

		// The second time it waits, and the others are gone meanwhile.
		svc.exit("b", 42)
		res = s.mustSync()
		assert.Equal(t, "CrashLoopBackOff", res.Waiting["b"].Reason)
		assert.Len(t, s.status().Containers, 1)
		svc.calls()
		res = s.mustSync()
		assert.Empty(t, svc.calls())
		time.Sleep(res.RetryAfter)
		s.mustSync()
		assert.Empty(t, s.status().Containers)
	})
}

// Whatever fails, the container that requested the restart is the last one that is removed, so that the next sync goes
// on.
func TestRestartAllContainersInterrupted(t *testing.T) {
	for name, fault := range map[string]fake.Fault{
		"stop":                {Call: "StopContainer", Err: assert.AnError},
		"removal":             {Call: "RemoveContainer", Target: fake.Target{Container: "i"}, Err: assert.AnError},
		"removal of the last": {Call: "RemoveContainer", Target: fake.Target{Container: "b"}, Err: assert.AnError},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService(t, "app:1")
			s := newSyncer(t, svc.client(cri.Options{}), restartAllPod())
			s.up(svc)
			svc.exit("b", 42)
			mend := svc.Inject(fault)
			_, err := s.sync()
			require.Error(t, err)
			require.NotNil(t, s.status().Newest("b"))

			mend()
			s.rt = svc.client(cri.Options{}) // another agent
			for range 3 {
				s.mustSync()
			}
			svc.exit("i", 0)
			s.mustSync()
			assert.Len(t, s.status().Containers, 3)
		})
	}
}

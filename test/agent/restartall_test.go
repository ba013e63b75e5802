package agent_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// withWatcher adds an init container "init" and a container "watcher", which has all containers restarted when it exits
// with 42.
func withWatcher(pod *v1.Pod) {
	testpod.Restart(v1.RestartPolicyNever)(pod)
	pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: testpod.Image}}
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
		Name: "watcher", Image: testpod.Image, RestartPolicy: new(v1.ContainerRestartPolicyNever),
		RestartPolicyRules: []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
				Values: []int32{42}},
		}},
	})
}

// All containers of a pod are restarted in its sandbox, whatever their restart policies, also if the agent is restarted
// in the middle.
func TestRestartAllContainers(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprint("interrupted=", interrupted), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{})
				rt.Script(fake.Target{Container: "init"}, fake.Exits(time.Second, 0))
				n := startNode(t, dir, rt)
				n.source.Set(testpod.With(makePod("web"), withWatcher))
				web := n.after(5 * time.Second)["web"]
				require.Equal(t, v1.PodRunning, web.Status.Phase)
				require.Equal(t, 3, started(rt))
				sandboxes := func() (n int) {
					for _, c := range rt.Calls(fake.Target{}) {
						if c.Method == "RunPodSandbox" {
							n++
						}
					}
					return n
				}

				mend := func() {}
				if interrupted {
					mend = rt.Inject(fake.Fault{Call: "RemoveContainer", Target: fake.Target{Container: "init"},
						Err: assert.AnError})
				}
				rt.Exit(fake.Target{Container: "watcher"}, 42)
				if interrupted {
					web = n.after(time.Second)["web"]
					c := conditionOf(web, v1.AllContainersRestarting)
					require.NotNil(t, c)
					assert.Equal(t, v1.ConditionTrue, c.Status)
					assert.Equal(t, "RestartAllContainersStarted", c.Reason)
					assert.Equal(t, v1.PodRunning, web.Status.Phase)
					n.stop(t)
					mend()
					n = startNode(t, dir, rt)
					n.source.Set(testpod.With(makePod("web"), withWatcher))
				}
				web = n.after(5 * time.Second)["web"]
				defer n.stop(t)
				assert.Equal(t, v1.PodRunning, web.Status.Phase)
				assert.Equal(t, 6, started(rt))
				assert.Equal(t, 1, sandboxes())
				assert.Equal(t, v1.ConditionFalse, conditionOf(web, v1.AllContainersRestarting).Status)
				assert.Equal(t, v1.ConditionTrue, conditionOf(web, v1.PodReady).Status)
				if !interrupted { // the fake writes no logs, which have the counts for another agent
					for _, list := range [][]v1.ContainerStatus{web.Status.InitContainerStatuses,
						web.Status.ContainerStatuses} {
						for _, s := range list {
							assert.Equal(t, int32(1), s.RestartCount, s.Name)
						}
					}
				}

				// A deadline ends the pod also while it restarts.
				rt.Exit(fake.Target{Container: "watcher"}, 42)
				web = n.after(5 * time.Second)["web"]
				require.NotNil(t, web.Status.ContainerStatuses[1].State.Waiting)
				assert.Equal(t, "CrashLoopBackOff", web.Status.ContainerStatuses[1].State.Waiting.Reason)
				n.source.Set(testpod.With(makePod("web"), withWatcher,
					func(pod *v1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(1)) }))
				web = n.after(5 * time.Second)["web"]
				assert.Equal(t, v1.PodFailed, web.Status.Phase)
				assert.Equal(t, "DeadlineExceeded", web.Status.Reason)
				assert.Equal(t, v1.ConditionFalse, conditionOf(web, v1.AllContainersRestarting).Status)
			})
		})
	}
}

func conditionOf(pod *v1.Pod, typ v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == typ {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

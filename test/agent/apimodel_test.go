package agent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// apiServer has the pods of a node as an API server does: with the statuses that the agent
// reports, until the agent has finished them.
type apiServer struct {
	*apiNode
	t    *testing.T
	dir  string
	rt   *fake.Runtime
	pods map[string]*v1.Pod
	seen map[string]int
}

func (s *apiServer) start() {
	s.apiNode = startAPINode(s.t, s.dir, s.rt, func(*kubeletkit.Options) {})
	s.seen = map[string]int{}
	s.push()
}

// push delivers the pods to the agent.
func (s *apiServer) push() {
	var all []*v1.Pod
	for _, pod := range s.pods {
		all = append(all, pod)
	}
	s.source.Set(all...)
}

// settle takes the statuses in, checks how they follow each other, and deletes the pods that
// the agent has finished, until nothing changes.
func (s *apiServer) settle(d time.Duration) {
	s.after(d)
	for changed := true; changed; {
		changed = false
		for name, pod := range s.pods {
			list := s.sink.Deliveries(pod.UID)
			for _, d := range list[s.seen[name]:] {
				s.check(pod, &d.Status)
				updated := pod.DeepCopy()
				updated.Status = d.Status
				s.pods[name], pod, changed = updated, updated, true
			}
			s.seen[name] = len(list)
			if pod.DeletionTimestamp != nil && s.status.Finished(pod.UID) {
				delete(s.pods, name)
				delete(s.seen, name)
				changed = true
			}
		}
		s.push()
		s.after(10 * time.Millisecond)
	}
}

func (s *apiServer) check(pod *v1.Pod, next *v1.PodStatus) {
	before := &pod.Status
	if before.Phase == v1.PodFailed || before.Phase == v1.PodSucceeded {
		assert.Equal(s.t, before.Phase, next.Phase, "%s: a final phase stays", pod.Name)
	}
	if before.Phase == v1.PodRunning {
		assert.NotEqual(s.t, v1.PodPending, next.Phase, "%s: a phase does not go back", pod.Name)
	}
	for i := range next.ContainerStatuses {
		c := &next.ContainerStatuses[i]
		assert.False(s.t, c.Ready && c.State.Running == nil, "%s: %s is ready and does not run", pod.Name, c.Name)
		if last, state := c.LastTerminationState.Terminated, c.State.Terminated; last != nil && state != nil &&
			state.ContainerID != "" {
			assert.NotEqual(s.t, state.ContainerID, last.ContainerID, "%s: the last state of %s is the present one",
				pod.Name, c.Name)
		}
		if i < len(before.ContainerStatuses) {
			assert.GreaterOrEqual(s.t, c.RestartCount, before.ContainerStatuses[i].RestartCount,
				"%s: restarts of %s", pod.Name, c.Name)
		}
	}
	assert.GreaterOrEqual(s.t, next.ObservedGeneration, before.ObservedGeneration)
	if !before.StartTime.IsZero() {
		assert.Equal(s.t, before.StartTime, next.StartTime, "%s", pod.Name)
	}
}

// What an API server does to pods in random order, with restarts of agent and machine, ends
// with all of them finished and nothing left.
func TestPodsOfAnAPIServerInRandomOrder(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { randomPods(t, dir, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomPods(t *testing.T, dir string, random *rand.Rand) {
	rt := fake.New(fake.Options{})
	rt.Script(fake.Target{Container: "setup"}, fake.Exits(2*time.Second, 0))
	rt.Script(fake.Target{Pod: "slow"}, fake.Behavior{StartDelay: 3 * time.Second, StopDelay: 5 * time.Second})
	rt.Script(fake.Target{Pod: "deaf"}, fake.Behavior{IgnoresStop: true})
	rt.Script(fake.Target{Pod: "job"}, fake.Exits(7*time.Second, 0))
	s := &apiServer{t: t, dir: dir, rt: rt, pods: map[string]*v1.Pod{}}
	s.start()
	names := []string{"slow", "deaf", "job", "init"}
	uid := 0
	for range 40 {
		name := names[random.IntN(len(names))]
		pod := s.pods[name]
		switch op := random.IntN(12); {
		case pod == nil:
			uid++
			pod = testpod.New(name, testpod.UID(types.UID(fmt.Sprintf("u%d", uid))),
				testpod.Restart(v1.RestartPolicyAlways), testpod.Containers("main"))
			if name == "job" {
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
			}
			if name == "init" {
				pod = testpod.With(pod, testpod.Init(v1.Container{Name: "setup", Image: "setup:1"}))
			}
			pod.Generation = 1
			s.pods[name] = pod
		case op < 2:
			s.pods[name] = testpod.With(pod, testpod.Deleted([]int64{1, 10, 60}[random.IntN(3)]),
				func(p *v1.Pod) { p.Generation++ })
		case op == 2:
			s.pods[name] = testpod.With(pod,
				func(p *v1.Pod) { p.Generation++; p.Labels = map[string]string{"n": fmt.Sprint(p.Generation)} })
		case op == 3 && pod.DeletionTimestamp == nil:
			s.pods[name] = testpod.With(pod,
				func(p *v1.Pod) { p.Generation++; p.Spec.Containers[0].Image = fmt.Sprintf("image:%d", p.Generation) })
		case op == 4:
			s.pods[name] = testpod.With(pod, func(p *v1.Pod) {
				if p.Status.Phase != v1.PodSucceeded {
					p.Status.Phase, p.Status.Reason = v1.PodFailed, "Killed"
				}
			})
		case op == 5:
			rt.Exit(fake.Target{Pod: name}, int32(random.IntN(2)))
		case op == 6:
			s.stop(t)
			s.after(time.Duration(random.IntN(5)) * time.Second)
			s.start()
		case op == 7 && random.IntN(3) == 0:
			s.stop(t)
			rt.Restart(fake.Reboot)
			s.start()
		case op == 8:
			delete(s.pods, name) // by force
			delete(s.seen, name)
		}
		s.push()
		s.settle(time.Duration(random.IntN(8000)) * time.Millisecond)
	}
	for name, pod := range s.pods {
		s.pods[name] = testpod.With(pod, testpod.Deleted(10))
	}
	s.push()
	for range 30 {
		s.settle(5 * time.Second)
	}
	assert.Empty(t, s.pods)
	assert.Empty(t, rt.Running(fake.Target{}))
	s.after(2 * time.Minute)
	assert.Empty(t, held(t, rt))
	s.stop(t)
	require.NotZero(t, uid)
}

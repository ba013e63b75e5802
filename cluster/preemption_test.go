package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// testPreemption starts a pod that has all CPUs of the node and ends only when it is killed, and then critical pods
// that need them.
func testPreemption(t *testing.T, behavior fake.Behavior, critical int, check func(r *rig, began time.Time)) {
	onNode(t, func(r *rig) {
		r.stop()
		r.rt.Close()
		r.rt = fake.New(fake.Options{Name: "containerd", Dir: r.root, Behavior: func(fake.Container) fake.Behavior {
			return behavior
		}})
		r.start()
		with := func(name string, cpu string) *v1.Pod {
			pod := bound(name)
			pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			return pod
		}
		r.api.Create(with("victim", "3500m"))
		r.after(time.Minute)
		require.Len(r, r.rt.Running(fake.Target{Pod: "victim"}), 1)
		began := time.Now()
		for i := range critical {
			pod := with([]string{"critical", "second"}[i], "1500m")
			pod.Spec.Priority = ptr.To[int32](2_000_000_000)
			r.api.Create(pod)
			r.after(time.Second)
		}
		check(r, began)
	})
}

func TestACriticalPodStartsWhenThePodsThatItPreemptsHaveEnded(t *testing.T) {
	testPreemption(t, fake.Behavior{StopDelay: 20 * time.Second}, 2, func(r *rig, began time.Time) {
		r.after(15 * time.Second)
		for _, name := range []string{"critical", "second"} {
			assert.Empty(r, r.starts(name, began), name)
			waiting := r.api.Get("default", name).Status.ContainerStatuses[0].State.Waiting
			require.NotNil(r, waiting)
			assert.Equal(r, "waiting for the end of pods so that this one can run: default/victim", waiting.Message)
		}
		r.after(10 * time.Second)
		victims := r.rt.Instances(fake.Target{Pod: "victim"})
		assert.Equal(r, v1.PodFailed, r.api.Get("default", "victim").Status.Phase)
		for _, name := range []string{"critical", "second"} {
			starts := r.starts(name, began)
			require.Len(r, starts, 1, name)
			assert.Less(r, starts[0], 21*time.Second)
			for _, v := range victims {
				assert.False(r, began.Add(starts[0]).Before(v.FinishedAt), "%s started %s, and the victim ended %s",
					name, starts[0], v.FinishedAt.Sub(began))
			}
		}
	})
}

// A pod that cannot be stopped delays a critical pod by one and a half of its grace period, as in kubelet.
func TestACriticalPodDoesNotWaitForEverForThePodsThatItPreempts(t *testing.T) {
	testPreemption(t, fake.Behavior{Unkillable: true}, 1, func(r *rig, began time.Time) {
		r.after(40 * time.Second)
		assert.Empty(r, r.starts("critical", began))
		r.after(25 * time.Second)
		assert.Len(r, r.starts("critical", began), 1)
	})
}

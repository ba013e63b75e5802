package podstatus_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// starting is the status of a pod whose container is being created.
func starting(reason string) v1.PodStatus {
	s := running(false)
	s.Phase, s.PodIP, s.PodIPs = v1.PodPending, "", nil
	s.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	return s
}

// That the container of a pod is being created is written after a second, unless the pod runs or
// has a problem by then; in a rush of pods five times a second.
func TestStartingPods(t *testing.T) {
	run(t, func(r *rig) {
		status := []string{"patch default/web status"}
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, starting("ContainerCreating"))
		time.Sleep(500 * time.Millisecond)
		assert.Empty(t, r.writes())
		r.deliver(pod, running(true))
		assert.Equal(t, status, r.writes())
		time.Sleep(time.Minute)
		assert.Empty(t, r.writes())

		for _, problem := range []string{"ErrImagePull", "CreateContainerConfigError"} {
			r.api.Delete("default", "web", ptr.To[int64](0))
			pod = r.api.Create(apiPod("web"))
			synctest.Wait()
			r.writes()
			r.deliver(pod, starting("PodInitializing"))
			time.Sleep(1100 * time.Millisecond)
			assert.Equal(t, status, r.writes())
			with := starting("ContainerCreating")
			with.PodIP = "10.0.0.1"
			r.deliver(pod, with)
			time.Sleep(9900 * time.Millisecond)
			assert.Empty(t, r.writes())
			time.Sleep(200 * time.Millisecond)
			assert.Equal(t, status, r.writes())
			r.deliver(pod, starting(problem))
			assert.Equal(t, status, r.writes())
			time.Sleep(time.Minute)
		}
		const rush = 100
		for i := range rush {
			pod := r.api.Create(apiPod(fmt.Sprint("rush-", i)))
			synctest.Wait()
			r.deliver(pod, starting("ContainerCreating"))
		}
		time.Sleep(900 * time.Millisecond)
		assert.Empty(t, r.writes())
		time.Sleep(9 * time.Second)
		assert.InDelta(t, 45, len(r.writes()), 2)
		time.Sleep(time.Second)
		assert.InDelta(t, 55, len(r.writes()), 2, "none waits for longer than 10 s")
	})
}

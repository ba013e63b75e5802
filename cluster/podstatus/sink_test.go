package podstatus_test

import (
	"testing"

	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// One patch for each change, no reads, nothing for a pod that does not change.
func TestCallsOfAPod(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(false))
		assert.Equal(t, []string{"patch default/web status"}, r.writes())
		r.deliver(pod, running(false))
		assert.Empty(t, r.writes(), "the same status")
		r.deliver(pod, running(true))
		assert.Equal(t, []string{"patch default/web status"}, r.writes())
		assert.Equal(t, v1.ConditionTrue, condition(r.api.Get("default", "web"), v1.PodReady).Status)

		r.restart()
		synctest.Wait()
		r.deliver(pod, running(true))
		time.Sleep(time.Hour)
		assert.Empty(t, r.writes(), "also after a restart, and in an hour")
	})
}

func TestDeletion(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Delete("default", "web", nil)
		time.Sleep(time.Minute)
		r.writes()
		require.NotNil(t, r.api.Get("default", "web"), "while it runs, it stays")
		r.end(pod.UID)
		time.Sleep(time.Minute)
		assert.Empty(t, r.writes(), "until its final status is reported")
		r.deliver(pod, ended(v1.PodSucceeded))
		assert.Equal(t, []string{"patch default/web status", "delete default/web"}, r.writes())
		assert.Nil(t, r.api.Get("default", "web"))
		r.gone(pod)
		assert.Empty(t, r.writes())
		assert.ErrorIs(t, r.try(pod, ended(v1.PodFailed)), status.ErrGone)
	})
}

func TestMirrorPod(t *testing.T) {
	run(t, func(r *rig) {
		pod := staticPod("web", "hash-1")
		r.deliver(pod, running(true))
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())
		mirror := r.api.Get("default", "web")
		assert.Equal(t, "hash-1", mirror.Annotations[podspec.AnnotationConfigMirror])
		assert.Equal(t, "node-uid", string(mirror.OwnerReferences[0].UID))
		assert.Equal(t, v1.PodRunning, mirror.Status.Phase)

		r.api.Delete("default", "web", nil)
		assert.Equal(t, []string{"delete default/web", "create default/web", "patch default/web status"}, r.writes())
		assert.NotEqual(t, mirror.UID, r.api.Get("default", "web").UID)
		assert.Equal(t, v1.PodRunning, r.api.Get("default", "web").Status.Phase)

		r.api.Delete("default", "web", ptr.To[int64](0))
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())

		r.gone(pod)
		assert.Equal(t, []string{"delete default/web"}, r.writes())
	})
}

// The status of a deleted pod whose containers have ended waits a moment for the final one.
func TestEndOfADeletedPodIsOneWrite(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
		run(t, func(r *rig) {
			pod := r.api.Create(apiPod("web"))
			synctest.Wait()
			r.deliver(pod, running(true))
			r.api.Delete("default", "web", nil)
			r.writes()
			stopped := ended(v1.PodRunning) // held back by the status manager
			r.deliver(pod, stopped)
			assert.Empty(r, r.writes())
			time.Sleep(after)
			if want := min(1, int(after/time.Second)); !assert.Len(r, r.writes(), want, "after %v", after) {
				return
			}
			r.end(pod.UID)
			r.deliver(pod, ended(v1.PodFailed))
			assert.Equal(r, []string{"patch default/web status", "delete default/web"}, r.writes())
			r.gone(pod)
		})
	}
}

// The end of a pod that nobody deletes is written at once; what follows waits a moment for the final
// status, and comes without it if the final one takes longer.
func TestEndOfAPodIsTwoWrites(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.writes()
		r.deliver(pod, ended(v1.PodRunning))
		assert.Len(r, r.writes(), 1)
		stopped := ended(v1.PodRunning)
		stopped.Conditions = append(stopped.Conditions, v1.PodCondition{Type: v1.PodReadyToStartContainers,
			Status: v1.ConditionFalse})
		r.deliver(pod, stopped)
		assert.Empty(r, r.writes())
		final := ended(v1.PodFailed)
		final.Conditions = stopped.Conditions
		r.deliver(pod, final)
		assert.Len(r, r.writes(), 1)
	})
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, ended(v1.PodRunning))
		r.writes()
		stopped := ended(v1.PodRunning)
		stopped.Conditions = append(stopped.Conditions, v1.PodCondition{Type: v1.PodReadyToStartContainers,
			Status: v1.ConditionFalse})
		r.deliver(pod, stopped)
		time.Sleep(time.Second)
		assert.Len(r, r.writes(), 1)
	})
}

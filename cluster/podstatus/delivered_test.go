package podstatus_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// latencies are those of the statuses that count as delivered.
type latencies struct {
	mu   sync.Mutex
	list []time.Duration
}

func (l *latencies) Measure(m runtime.Measurement) {
	if d, ok := m.(status.Delivered); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = append(l.list, d.Latency)
	}
}

// take returns the latencies since the last call, when everything is quiet.
func (l *latencies) take() []time.Duration {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// A status counts as delivered when the API server has it, and not before: not while it waits for the next
// one, while the server is away or while the server refuses it.
func TestDeliveredMeansWritten(t *testing.T) {
	run(t, func(r *rig) {
		measured := &latencies{}
		r.storeOpts.Measure = measured.Measure
		r.restart()
		store := r.store
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()

		store.Set(pod, starting("ContainerCreating"))
		time.Sleep(900 * time.Millisecond)
		assert.Empty(r, r.writes())
		assert.Empty(r, measured.take(), "it waits")
		time.Sleep(200 * time.Millisecond)
		assert.Equal(r, []string{"patch default/web status"}, r.writes())
		assert.Equal(r, []time.Duration{time.Second}, measured.take())

		with := starting("ContainerCreating")
		with.PodIP, with.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}}
		store.Set(pod, with)
		time.Sleep(5 * time.Second)
		assert.Empty(r, measured.take(), "a status that is replaced by the next one")
		store.Set(pod, running(false))
		assert.Equal(r, []time.Duration{5 * time.Second}, measured.take())

		ready := false
		for name, fault := range map[string]func(*apitest.Request) (*http.Response, error){
			"away": func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
			"refuses": func(*apitest.Request) (*http.Response, error) {
				return apitest.Response(nil, apierrors.NewBadRequest("no")), nil
			},
		} {
			r.api.Before(fault)
			ready = !ready
			store.Set(pod, running(ready))
			time.Sleep(time.Minute)
			assert.Empty(r, measured.take(), name)
			r.writes()
			r.api.Before(nil)
			time.Sleep(10 * time.Minute)
			assert.Equal(r, []string{"patch default/web status"}, r.writes(), name)
			if got := measured.take(); assert.Len(r, got, 1, name) {
				assert.Greater(r, got[0], time.Minute, name)
				assert.Less(r, got[0], 5*time.Minute, name)
			}
		}
	})
}

// The API object of a pod is deleted as soon as the pod has finished, by one call, without a check of the time.
func TestDeletedWhenFinished(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Delete("default", "web", nil)
		r.deliver(pod, ended(v1.PodSucceeded))
		time.Sleep(time.Hour)
		assert.Equal(r, []string{"patch default/web status", "patch default/web status"}, r.writes())
		r.mu.Lock()
		r.ended[pod.UID] = true
		r.mu.Unlock()
		time.Sleep(time.Hour)
		assert.Empty(r, r.writes(), "nothing tells the sink")
		r.store.PodFinished(runtime.RefOf(pod))
		assert.Equal(r, []string{"delete default/web"}, r.writes())
	})
}

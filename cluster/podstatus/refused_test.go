package podstatus_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/status"
)

// A status that the server refuses is sent again when it changes, and after pauses that grow from 2
// seconds to 5 minutes. The deletion of the pod does not depend on it.
func TestRefusedStatus(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		refuses := func(req *apitest.Request) (*http.Response, error) {
			if req.Verb != "patch" {
				return nil, nil
			}
			return apitest.Response(nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web",
				field.ErrorList{field.Invalid(field.NewPath("status", "podIPs"), "x", "no address")})), nil
		}
		r.api.Before(refuses)
		err := r.try(pod, running(true))
		require.ErrorIs(t, err, status.ErrRefused)
		require.ErrorContains(t, err, "status.podIPs")
		assert.Len(t, r.writes(), 1)
		r.api.Update("default", "web", func(pod *v1.Pod) { pod.Labels = map[string]string{"a": "b"} })
		time.Sleep(1900 * time.Millisecond)
		assert.Empty(t, r.writes())
		time.Sleep(5 * time.Minute)
		assert.Len(t, r.writes(), 7) // after 2, 6, 14, 30, 62, 126 and 254 seconds
		time.Sleep(time.Hour)
		assert.InDelta(t, 12, len(r.writes()), 1)
		require.ErrorIs(t, r.try(pod, running(false)), status.ErrRefused)
		assert.Len(t, r.writes(), 1)
		r.api.Before(nil)
		time.Sleep(2 * time.Second)
		assert.Len(t, r.writes(), 1, "another status begins at 2 seconds")
		assert.Equal(t, v1.PodRunning, r.api.Get("default", "web").Status.Phase)

		r.deliver(pod, running(true))
		r.writes()
		r.api.Before(refuses)
		r.api.Delete("default", "web", nil)
		r.end(pod.UID)
		require.ErrorIs(t, r.try(pod, ended(v1.PodFailed)), status.ErrRefused)
		time.Sleep(29 * time.Second)
		assert.Equal(t, slices.Repeat([]string{"patch default/web status"}, 4), r.writes())
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"patch default/web status", "delete default/web"}, r.writes())
		assert.Nil(t, r.api.Get("default", "web"))
	})
}

// A webhook that refuses the final status of a deleted pod once does not cost that status.
func TestFinalStatusRefusedOnce(t *testing.T) {
	run(t, func(r *rig) {
		pod := apiPod("web")
		pod.Finalizers = []string{"example.com/keep"} // so that it can be read afterwards
		pod = r.api.Create(pod)
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Delete("default", "web", nil)
		r.end(pod.UID)
		r.writes()
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb != "patch" {
				return nil, nil
			}
			r.api.Before(nil)
			return apitest.Response(nil, apierrors.NewBadRequest("a webhook denied the request")), nil
		})
		require.ErrorIs(t, r.try(pod, ended(v1.PodFailed)), status.ErrRefused)
		assert.Equal(t, []string{"patch default/web status"}, r.writes())
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"patch default/web status", "delete default/web"}, r.writes())
		assert.Equal(t, v1.PodFailed, r.api.Get("default", "web").Status.Phase)
	})
}

// A status that is refused again and again is an error of the log once.
func TestRefusedStatusIsLoggedOnce(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	run(t, func(r *rig) {
		r.opts.Logger, r.storeOpts.Logger = log, log
		r.restart()
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb != "patch" {
				return nil, nil
			}
			return apitest.Response(nil, apierrors.NewBadRequest("no")), nil
		})
		require.ErrorIs(t, r.try(pod, running(true)), status.ErrRefused)
		time.Sleep(time.Minute)
		assert.Greater(t, len(r.writes()), 4)
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, lines, 1)
		assert.Contains(t, lines[0], "refuses the status of a pod")
	})
}

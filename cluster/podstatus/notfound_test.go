package podstatus_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// TestNotFoundIsNoProof has an API server that starts: until its admission plugin NodeRestriction has a list
// of pods, it answers 404 to each deletion by a node.
func TestNotFoundIsNoProof(t *testing.T) {
	notReady := func(r *rig) *atomic.Bool {
		var starting atomic.Bool
		starting.Store(true)
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb != "delete" || !starting.Load() {
				return nil, nil
			}
			return apitest.Response(nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web")), nil
		})
		return &starting
	}
	t.Run("mirror pod", func(t *testing.T) {
		run(t, func(r *rig) {
			stale := apiPod("web") // of the agent before
			stale.Annotations = map[string]string{podspec.AnnotationConfigMirror: "other hash",
				podspec.AnnotationConfigSource: "file"}
			stale = r.api.Create(stale)
			synctest.Wait()
			starting := notReady(r)
			r.store.Set(staticPod("web", "hash"), running(true))
			time.Sleep(time.Minute)
			starting.Store(false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			mirror, ok := r.src.ByName("default", "web")
			require.True(t, ok)
			assert.NotEqual(t, stale.UID, mirror.UID)
			assert.Equal(t, "hash", mirror.Annotations[podspec.AnnotationConfigMirror])
			assert.Equal(t, v1.PodRunning, mirror.Status.Phase)
		})
	})
	t.Run("pod of the API server", func(t *testing.T) {
		run(t, func(r *rig) {
			pod := r.api.Create(apiPod("web"))
			r.deliver(pod, running(true))
			starting := notReady(r)
			r.api.Delete("default", "web", ptr.To[int64](30))
			r.deliver(pod, ended(v1.PodSucceeded))
			r.end(pod.UID)
			time.Sleep(time.Minute)
			starting.Store(false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			_, ok := r.src.ByUID(pod.UID)
			assert.False(t, ok)
		})
	})
}

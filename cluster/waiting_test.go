package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// newStatic returns a static pod.
func newStatic(name string, options ...testpod.Option) *v1.Pod {
	pod := bound(name)
	pod.UID = "static-" + pod.UID
	pod.Annotations = map[string]string{podspec.AnnotationConfigSource: "file", podspec.AnnotationConfigHash: "hash"}
	pod = testpod.With(pod, options...)
	manifest.SetDefaults(pod)
	return pod
}

// A pod of the API server whose name or UID a static pod has never runs here. When it is
// deleted, its object goes, and the static pod runs on.
func TestDeletionOfAPodThatWaitsForAStaticPod(t *testing.T) {
	for name, static := range map[string]*v1.Pod{
		"name":         newStatic("web"),
		"UID":          newStatic("other", testpod.UID("uid-web")),
		"name and UID": newStatic("web", testpod.UID("uid-web")),
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				r.static.Set(static)
				r.after(time.Minute)
				require.NotNil(t, r.api.Get("default", static.Name), "the mirror pod")
				web := bound("web")
				web.UID = "uid-web"
				r.api.Replace(web) // the mirror pod, if it has the name
				r.after(time.Minute)
				require.Len(t, r.rt.Running(fake.Target{}), 1)
				r.api.Delete("default", "web", nil)
				r.after(time.Minute)
				if now := r.api.Get("default", "web"); now != nil {
					assert.True(t, podspec.IsMirror(now), "the pod of the API server is still there: %v",
						now.DeletionTimestamp)
				}
				assert.Len(t, r.rt.Running(fake.Target{}), 1, "the static pod runs on")
				mirror := r.api.Get("default", static.Name)
				require.NotNil(t, mirror)
				assert.Equal(t, v1.PodRunning, mirror.Status.Phase)
			})
		})
	}
}

package podstatus_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage/outagetest"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestMirrorPods(t *testing.T) {
	run(t, func(r *rig) {
		one, two := staticPod("web", "hash-1"), staticPod("web", "hash-2")
		r.deliver(one, running(true))
		r.writes()
		r.deliver(two, running(false)) // the manifest has changed
		assert.Equal(t, []string{"delete default/web", "create default/web", "patch default/web status"}, r.writes())
		r.deliver(one, ended(v1.PodFailed))
		r.gone(one)
		assert.Empty(t, r.writes(), "of its predecessor nothing is shown any more")
		assert.Equal(t, "hash-2", r.api.Get("default", "web").Annotations[podspec.AnnotationConfigMirror])

		r.deliver(two, ended(v1.PodFailed))
		r.writes()
		r.restart()
		synctest.Wait()
		r.deliver(two, running(true)) // a new agent starts it again: the phase must not go back
		assert.Equal(t, []string{"delete default/web", "create default/web", "patch default/web status"}, r.writes())
		assert.Equal(t, v1.PodRunning, r.api.Get("default", "web").Status.Phase)
	})
}

// The end of a pod that an earlier agent has left does not delete the mirror pod of one that a kubelet has started
// since.
func TestMirrorPodOfAnotherAgent(t *testing.T) {
	run(t, func(r *rig) {
		theirs, ours := staticPod("web", "theirs"), staticPod("web", "ours")
		r.mu.Lock()
		r.static["web"] = true
		r.mu.Unlock()
		r.deliver(theirs, running(true))
		r.restart()
		synctest.Wait()
		r.writes()
		r.gone(ours)
		assert.Empty(t, r.writes())
		r.deliver(theirs, running(true))
		assert.Empty(t, r.writes())
	})
}

// The generations in the status of a mirror pod are those of the static pod, which has none, as with kubelet.
func TestGenerationsOfAMirrorPod(t *testing.T) {
	run(t, func(r *rig) {
		mirror := apiPod("web")
		mirror.Generation = 1
		mirror.Annotations = map[string]string{podspec.AnnotationConfigMirror: "hash",
			podspec.AnnotationConfigSource: "file"}
		r.api.Create(mirror)
		synctest.Wait()
		r.deliver(staticPod("web", "hash"), running(true))
		mirror = r.api.Get("default", "web")
		assert.EqualValues(t, 1, mirror.Generation)
		assert.Zero(t, mirror.Status.ObservedGeneration)
		for _, c := range mirror.Status.Conditions {
			assert.Zero(t, c.ObservedGeneration, c.Type)
		}
		assert.NotEmpty(t, mirror.Status.Conditions)
	})
}

// A static pod has its mirror pod back if its successor is gone before it has ended.
func TestSuccessorThatIsGone(t *testing.T) {
	run(t, func(r *rig) {
		one, two := staticPod("web", "hash-1"), staticPod("web", "hash-2")
		r.deliver(one, running(true))
		r.writes()
		r.deliver(two, running(false))
		r.writes()
		r.gone(two)
		r.writes()
		r.deliver(one, running(false))
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())
		assert.Equal(t, "hash-1", r.api.Get("default", "web").Annotations[podspec.AnnotationConfigMirror])
		r.gone(one)
		assert.Nil(t, r.api.Get("default", "web"))
	})
}

// A mirror pod that has the UID of a static pod of another name does not take its place.
func TestMirrorPodWithTheUIDOfAStaticPod(t *testing.T) {
	run(t, func(r *rig) {
		r.mu.Lock()
		r.static["other"] = true
		r.mu.Unlock()
		forged := staticPod("other", "hash")
		forged.Annotations[podspec.AnnotationConfigMirror] = "hash"
		r.api.Create(forged)
		synctest.Wait()
		static := staticPod("web", "hash")
		r.deliver(static, running(true))
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())
		r.api.Delete("default", "web", ptr.To[int64](0))
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())
		r.gone(static)
		assert.Equal(t, []string{"delete default/web"}, r.writes())
		r.api.Create(apiPod("web"))
		r.api.Delete("default", "web", ptr.To[int64](0))
		time.Sleep(time.Minute)
		assert.Empty(t, r.writes())
	})
}

// Mirror pods without a static pod are deleted once all sources have delivered; those that
// have one are adopted.
func TestOrphanedMirrorPods(t *testing.T) {
	run(t, func(r *rig) {
		one, two := staticPod("one", "hash-1"), staticPod("two", "hash-2")
		r.deliver(one, running(true))
		r.deliver(two, running(true))
		r.writes()
		r.mu.Lock()
		r.static["one"], r.static["two"] = true, true // "not all have delivered"
		r.mu.Unlock()
		r.restart()
		time.Sleep(time.Minute)
		r.deliver(one, running(true))
		assert.Empty(t, r.writes())
		r.mu.Lock()
		delete(r.static, "two")
		r.mu.Unlock()
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"delete default/two"}, r.writes())
	})
}

// The mirror pod of a static pod that ends during an outage is deleted within 3 s of the end of the
// outage. If the static pod has come back by then, its mirror pod is created again.
func TestMirrorPodOfAStaticPodThatEndsInAnOutage(t *testing.T) {
	run(t, func(r *rig) {
		one, two := staticPod("one", "hash-1"), staticPod("two", "hash-2")
		r.deliver(one, running(true))
		r.deliver(two, running(true))
		r.writes()
		r.api.Before(func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		r.gone(one)
		r.gone(two)
		r.deliver(two, running(true))
		time.Sleep(10 * time.Minute)
		assert.Less(t, len(r.writes()), 330, "one call in 2 s")
		r.api.Before(nil)
		time.Sleep(3 * time.Second)
		got := r.writes()
		slices.Sort(got)
		assert.Equal(t, []string{"create default/two", "delete default/one", "delete default/two",
			"patch default/two status"}, got)
		assert.Equal(t, v1.PodRunning, r.api.Get("default", "two").Status.Phase)
		time.Sleep(time.Hour)
		assert.Empty(t, r.writes())
	})
}

// A mirror pod that the node cannot have is requested less and less often, and delays no other pod. It is
// created when an outage ends, or when the pod that has its name is gone.
func TestMirrorPodsThatCannotBe(t *testing.T) {
	static, other := staticPod("web", "hash"), staticPod("other", "hash-2")
	for name, tc := range map[string]struct {
		before func(r *rig)
		answer error // to each creation
		mend   func(r *rig)
		within time.Duration
	}{
		"forbidden": {
			answer: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no secrets")),
			mend:   func(r *rig) { outagetest.End(r.Context(), &r.signal) }, within: 3 * time.Second,
		},
		"no namespace": {
			answer: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"),
			mend:   func(*rig) {}, within: 5 * time.Minute,
		},
		"name taken on another node": {
			before: func(r *rig) {
				for _, name := range []string{"web", "other"} {
					pod := apiPod(name)
					pod.Spec.NodeName = "elsewhere"
					r.api.Create(pod)
				}
			},
			mend: func(r *rig) {
				r.api.Delete("default", "web", ptr.To[int64](0))
				r.api.Delete("default", "other", ptr.To[int64](0))
			},
			within: 5 * time.Minute,
		},
		"finalizers keep the earlier one": {
			before: func(r *rig) {
				r.deliver(static, running(true))
				r.deliver(other, running(true))
				r.writes()
				for _, name := range []string{"web", "other"} {
					r.api.Update("default", name, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/keep"} })
					r.api.Delete("default", name, ptr.To[int64](0))
				}
			},
			mend: func(r *rig) {
				for _, name := range []string{"web", "other"} {
					r.api.Update("default", name, func(pod *v1.Pod) { pod.Finalizers = nil })
				}
			},
			within: time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				pod := r.api.Create(apiPod("pod"))
				synctest.Wait()
				if tc.before != nil {
					tc.before(r)
				}
				if tc.answer != nil {
					r.api.Before(func(req *apitest.Request) (*http.Response, error) {
						if req.Verb != "create" {
							return nil, nil
						}
						return apitest.Response(nil, tc.answer), nil
					})
				}
				_ = r.try(static, running(true))
				_ = r.try(other, running(true))
				time.Sleep(time.Hour)
				assert.InDelta(t, 80, len(r.writes()), 45, "20 creations of each in an hour, and perhaps as many reads")
				r.deliver(pod, running(true))
				assert.Equal(t, []string{"patch default/pod status"}, r.writes())
				r.api.Before(nil)
				tc.mend(r)
				time.Sleep(tc.within)
				synctest.Wait()
				for _, name := range []string{"web", "other"} {
					if got := r.api.Get("default", name); assert.NotNil(t, got) {
						assert.True(t, podspec.IsMirror(got))
						assert.Equal(t, v1.PodRunning, got.Status.Phase)
					}
				}
				r.writes()
				time.Sleep(time.Hour)
				assert.Empty(t, r.writes())
			})
		})
	}
}

// A static pod whose name another pod has gets its mirror pod when that one is gone.
func TestNameOfAMirrorPodIsTaken(t *testing.T) {
	run(t, func(r *rig) {
		r.api.Create(apiPod("web"))
		synctest.Wait()
		static := staticPod("web", "hash")
		assert.ErrorContains(t, r.try(static, running(true)), "another pod has its name")
		assert.Empty(t, r.writes())
		r.api.Delete("default", "web", ptr.To[int64](0))
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())

		elsewhere := apiPod("other")
		elsewhere.Spec.NodeName = "elsewhere" // so that the watch does not show it
		r.api.Create(elsewhere)
		assert.ErrorContains(t, r.try(staticPod("other", "hash-2"), running(true)), "another pod has its name")
		assert.Equal(t, []string{"create default/other", "get default/other"}, r.writes())
	})
}

// A mirror pod that was deleted before the watch had it is made again.
func TestMirrorPodThatTheWatchHasNotSeen(t *testing.T) {
	run(t, func(r *rig) {
		late := func(req *apitest.Request) (*http.Response, error) {
			if req.Verb == "watch" || req.Verb == "list" {
				return nil, errors.New("connection refused")
			}
			return nil, nil
		}
		r.api.Before(late)
		r.api.Compact()
		r.api.BreakWatches()
		synctest.Wait()
		static := staticPod("web", "hash")
		r.deliver(static, running(true))
		r.writes()
		r.api.Delete("default", "web", ptr.To[int64](0))
		r.api.Compact()
		r.api.Before(nil)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"create default/web", "patch default/web status"}, r.writes())

		r.api.Before(late)
		r.api.BreakWatches()
		r.api.Delete("default", "web", ptr.To[int64](0))
		synctest.Wait()
		r.gone(static) // its mirror pod is not in the watch's view either
		other := staticPod("other", "hash-2")
		r.deliver(other, running(true))
		r.gone(other)
		assert.Nil(t, r.api.Get("default", "other"))
	})
}

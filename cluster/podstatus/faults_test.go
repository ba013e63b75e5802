package podstatus_test

import (
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage/outagetest"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/status"
)

// What another writer has overwritten is written again: at once, and with a back-off if the
// other one insists. Foreign conditions stay.
func TestOverwritten(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.writes()
		overwrite := func() {
			r.api.Update("default", "web", func(pod *v1.Pod) {
				condition(pod, v1.PodReady).Status = v1.ConditionFalse
				if condition(pod, foreign) == nil {
					pod.Status.Conditions = append(pod.Status.Conditions,
						v1.PodCondition{Type: foreign, Status: v1.ConditionTrue})
				}
			})
		}
		overwrite()
		assert.Equal(t, []string{"patch default/web status"}, r.writes())
		got := r.api.Get("default", "web")
		assert.Equal(t, v1.ConditionTrue, condition(got, v1.PodReady).Status)
		assert.NotNil(t, condition(got, foreign))

		for range 600 { // a controller that insists
			overwrite()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		assert.Less(t, len(r.writes()), 15)
		assert.Equal(t, v1.ConditionTrue, condition(r.api.Get("default", "web"), v1.PodReady).Status,
			"we have the last word")

		r.api.Update("default", "web", func(pod *v1.Pod) { pod.Labels = map[string]string{"a": "b"} })
		assert.Empty(t, r.writes(), "not ours")
	})
}

// A conflict of a deletion means that the pod is gone only if another one has its name.
func TestConflictOfADeletion(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		conflicts := 1
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if conflicts--; req.Verb == "delete" && conflicts >= 0 {
				return apitest.Response(nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"},
					"web", errors.New("the object has been modified"))), nil
			}
			return nil, nil
		})
		r.api.Delete("default", "web", nil)
		synctest.Wait()
		r.end(pod.UID)
		r.writes()
		conflicts = 2 // the write of the status is the first request
		require.ErrorContains(t, r.try(pod, ended(v1.PodSucceeded)), "the object has been modified")
		time.Sleep(time.Second)
		assert.Equal(t, []string{"patch default/web status", "delete default/web", "get default/web",
			"delete default/web"}, r.writes())
		assert.Nil(t, r.api.Get("default", "web"))
	})
}

// A pod that was recreated under its name never gets the status of its predecessor, also when
// the watch has not shown it yet.
func TestRecreatedPod(t *testing.T) {
	run(t, func(r *rig) {
		first := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(first, running(true))
		r.writes()
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb == "patch" { // just before our patch arrives
				r.api.Before(nil)
				r.api.Delete("default", "web", ptr.To[int64](0))
				r.api.Create(apiPod("web"))
			}
			return nil, nil
		})
		assert.ErrorIs(t, r.try(first, running(false)), status.ErrGone)
		assert.Equal(t, v1.PodPending, r.api.Get("default", "web").Status.Phase)
		assert.Len(t, r.writes(), 1)
		assert.ErrorIs(t, r.try(first, running(true)), status.ErrGone)
		assert.Empty(t, r.writes(), "the watch knows that it is gone")
	})
}

// Finalizers keep the object after the deletion. There are no further calls.
func TestFinalizers(t *testing.T) {
	run(t, func(r *rig) {
		web := apiPod("web")
		web.Finalizers = []string{"example.com/keep"}
		pod := r.api.Create(web)
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Delete("default", "web", nil)
		r.end(pod.UID)
		r.writes()
		r.deliver(pod, ended(v1.PodSucceeded))
		assert.Equal(t, []string{"patch default/web status", "delete default/web"}, r.writes())
		r.restart()
		synctest.Wait()
		r.deliver(pod, ended(v1.PodSucceeded))
		r.api.Update("default", "web", func(pod *v1.Pod) { pod.Labels = map[string]string{"a": "b"} })
		time.Sleep(time.Hour)
		assert.Empty(t, r.writes())
		r.api.Update("default", "web", func(pod *v1.Pod) { pod.Finalizers = nil })
		assert.Nil(t, r.api.Get("default", "web"), "the server removes it")
	})
}

// A pod is deleted also if it ended before the deletion was requested, was refused, was never
// taken by the agent, or is found deleted when the node comes back.
func TestDeletionWithoutATerminationHere(t *testing.T) {
	run(t, func(r *rig) {
		done, refused, unknown := r.api.Create(apiPod("done")), r.api.Create(apiPod("refused")),
			r.api.Create(apiPod("unknown"))
		for _, name := range []string{"done", "refused", "unknown"} {
			// else a deletion of an ended pod is immediate
			r.api.Update("default", name, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/keep"} })
		}
		synctest.Wait()
		r.deliver(done, running(true))
		r.api.Delete("default", "done", nil)
		r.end(done.UID)
		r.deliver(done, ended(v1.PodSucceeded))
		r.deliver(refused, v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"})
		r.writes()

		down := apiPod("down")
		pod := r.api.Create(down)
		r.api.Delete("default", "down", nil)
		r.api.Delete("default", "unknown", nil)
		r.restart()
		time.Sleep(10 * time.Second)
		assert.Empty(t, r.writes(), "not before they have ended")
		r.end(unknown.UID)
		r.end(pod.UID)
		time.Sleep(2 * time.Second)
		got := r.writes()
		slices.Sort(got)
		assert.Equal(t, []string{"delete default/down", "delete default/unknown"}, got)
		assert.Nil(t, r.api.Get("default", "down"))
	})
}

// The first status of a pod may come when its deletion has failed already.
func TestFirstStatusAfterAFailedDeletion(t *testing.T) {
	run(t, func(r *rig) {
		pod := apiPod("web")
		pod.Finalizers = []string{"example.com/keep"} // so that it can be read afterwards
		pod = r.api.Create(pod)
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb != "delete" {
				return nil, nil
			}
			return apitest.Response(nil, apierrors.NewInternalError(errors.New("a webhook is away"))), nil
		})
		r.end(pod.UID)
		r.api.Delete("default", "web", nil)
		time.Sleep(10 * time.Second)
		assert.Contains(t, r.writes(), "delete default/web")
		r.api.Before(nil)
		r.deliver(pod, ended(v1.PodFailed))
		assert.Equal(t, []string{"patch default/web status", "delete default/web"}, r.writes())
		assert.Equal(t, v1.PodFailed, r.api.Get("default", "web").Status.Phase)
	})
}

// A pod that was deleted by force is gone for the sink; what the agent says of it is not sent.
func TestForceDelete(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Delete("default", "web", ptr.To[int64](0))
		r.writes()
		assert.ErrorIs(t, r.try(pod, ended(v1.PodFailed)), status.ErrGone)
		r.gone(pod)
		assert.Empty(t, r.writes())
	})
}

// While the server is away statuses fail soon; when it is back, all are written within 3 s, the
// newest only.
func TestOutage(t *testing.T) {
	for name, fault := range map[string]func(*apitest.Request) (*http.Response, error){
		"refuses connections": func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
		"never answers":       apitest.Hang,
		"500": func(*apitest.Request) (*http.Response, error) {
			return apitest.Response(nil, apierrors.NewInternalError(errors.New("etcd is away"))), nil
		},
		"401": func(*apitest.Request) (*http.Response, error) {
			return apitest.Response(nil, apierrors.NewUnauthorized("expired")), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				a, b := r.api.Create(apiPod("a")), r.api.Create(apiPod("b"))
				synctest.Wait()
				r.api.Before(fault)
				begun := time.Now()
				require.Error(t, r.try(a, running(false)))
				require.Error(t, r.try(b, running(false)))
				assert.LessOrEqual(t, time.Since(begun), 20*time.Second, "each call has a deadline of 10 s")
				require.Error(t, r.try(a, running(true)))
				time.Sleep(10 * time.Minute)
				assert.Less(t, len(r.writes()), 330, "one call in 2 s")
				r.api.Before(nil)
				time.Sleep(13 * time.Second) // a call that hangs has its deadline
				got := r.writes()
				slices.Sort(got)
				assert.Equal(t, []string{"patch default/a status", "patch default/b status"}, got)
				assert.Equal(t, v1.ConditionTrue, condition(r.api.Get("default", "a"), v1.PodReady).Status)
			})
		})
	}
}

// Events of a pod that come while a call for it gets no answer start one further attempt, and not one each.
func TestEventsDuringACall(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb == "patch" {
				return apitest.Hang(req)
			}
			return nil, nil
		})
		before := goruntime.NumGoroutine()
		for i := range 300 {
			r.api.Update("default", "web", func(pod *v1.Pod) {
				condition(pod, v1.PodReady).Status = v1.ConditionFalse
				pod.Labels = map[string]string{"event": fmt.Sprint(i)}
			})
			synctest.Wait()
		}
		assert.Less(t, goruntime.NumGoroutine(), before+20)
		r.api.Before(nil)
		time.Sleep(20 * time.Second)
		assert.Equal(t, v1.ConditionTrue, condition(r.api.Get("default", "web"), v1.PodReady).Status)
	})
}

// A server that fails for one pod and refuses another one is not asked more often, whatever
// it answers for a third.
func TestServerThatFailsForSome(t *testing.T) {
	run(t, func(r *rig) {
		a, b, c := r.api.Create(apiPod("a")), r.api.Create(apiPod("b")), r.api.Create(apiPod("c"))
		synctest.Wait()
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			switch req.Name {
			case "a":
				return apitest.Response(nil, apierrors.NewInternalError(errors.New("a webhook is away"))), nil
			case "b":
				return apitest.Response(nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"},
					"b", errors.New("no"))), nil
			}
			return nil, nil
		})
		_ = r.try(a, running(true))
		_ = r.try(b, running(true))
		for i := range 60 {
			r.deliver(c, running(i%2 == 0))
			time.Sleep(time.Second)
		}
		writes := slices.DeleteFunc(r.writes(), func(w string) bool { return w == "patch default/c status" })
		assert.Less(t, len(writes), 80, "each of the two once in 2 s at most, and by its own back-off")
	})
}

// A server that fails for a pod is not asked more often because other requests of the node succeed
// again. At the end of an outage it is tried within 2 s nonetheless.
func TestOutagesOfOtherRequests(t *testing.T) {
	run(t, func(r *rig) {
		r.storeOpts.RetryMin, r.storeOpts.RetryMax = time.Hour, time.Hour
		r.restart()
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			return apitest.Response(nil, apierrors.NewInternalError(errors.New("a webhook is away"))), nil
		})
		require.Error(t, r.try(pod, running(true)))
		for range 600 {
			outagetest.End(r.Context(), &r.signal)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		assert.LessOrEqual(t, len(r.writes()), 6, "three times, and once a minute")
		time.Sleep(3 * time.Minute)
		r.writes()
		r.api.Before(nil)
		outagetest.End(r.Context(), &r.signal)
		time.Sleep(2100 * time.Millisecond)
		assert.Equal(t, []string{"patch default/web status"}, r.writes())
	})
}

// The node controller marks a pod as not ready just before a patch of the agent, which does not have that condition.
// The agent writes it again at once.
func TestOverwrittenJustBeforeAPatch(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		require.Len(t, r.writes(), 1)
		var once sync.Once
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			once.Do(func() {
				r.api.Update("default", "web", func(pod *v1.Pod) {
					condition(pod, v1.PodReady).Status = v1.ConditionFalse
				})
			})
			return nil, nil
		})
		s := running(true)
		s.Message = "another"
		r.deliver(pod, s)
		assert.Len(t, r.writes(), 2)
		got := r.api.Get("default", "web")
		assert.Equal(t, v1.ConditionTrue, condition(got, v1.PodReady).Status)
		assert.Equal(t, "another", got.Status.Message)
		time.Sleep(time.Hour)
		assert.Empty(t, r.writes())
	})
}

// A server that does not know a field drops it. There is no patch after the first one.
func TestServerThatDropsFields(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.api.Mutate(func(pod *v1.Pod) { pod.Status.ObservedGeneration = 0 })
		s := running(true)
		s.ObservedGeneration = 1
		r.deliver(pod, s)
		assert.Len(t, r.writes(), 1)
		r.api.Update("default", "web", func(pod *v1.Pod) { pod.Labels = map[string]string{"a": "b"} })
		time.Sleep(10 * time.Minute)
		assert.Empty(t, r.writes())
	})
}

// Before the pods are listed, and before the node is registered, statuses are kept. They are
// written as soon as that is so.
func TestNotYet(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		static := staticPod("static", "hash")
		r.mu.Lock()
		r.nodeUID = ""
		r.static["static"] = true
		r.mu.Unlock()
		r.api.Before(func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		r.restart()
		r.deliver(pod, running(false))
		r.deliver(static, running(true))
		r.deliver(pod, running(true))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, r.writes())
		r.api.Before(nil)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"patch default/web status"}, r.writes())
		r.mu.Lock()
		r.nodeUID = "node-uid"
		r.mu.Unlock()
		time.Sleep(time.Second)
		assert.Equal(t, []string{"create default/static", "patch default/static status"}, r.writes())
	})
}

// A pod of the API server never goes back to an earlier phase, whatever the agent says.
func TestPhaseDoesNotGoBack(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		synctest.Wait()
		r.deliver(pod, running(true))
		r.api.Update("default",
			"web", func(pod *v1.Pod) { pod.Status.Phase, pod.Status.Reason = v1.PodFailed, "NodeLost" })
		time.Sleep(time.Minute)
		r.deliver(pod, running(false))
		got := r.api.Get("default", "web")
		assert.Equal(t, v1.PodFailed, got.Status.Phase)
		assert.Equal(t, "NodeLost", got.Status.Reason)
		assert.Equal(t, v1.ConditionFalse, condition(got, v1.PodReady).Status)
	})
}

// A pod that another writer has set to a final phase is not ready, also while its containers run
// (kubernetes#108594).
func TestNotReadyInAFinalPhase(t *testing.T) {
	for phase, reason := range map[v1.PodPhase]string{v1.PodFailed: "PodFailed", v1.PodSucceeded: "PodCompleted"} {
		t.Run(string(phase), func(t *testing.T) {
			run(t, func(r *rig) {
				pod := r.api.Create(apiPod("web"))
				synctest.Wait()
				r.deliver(pod, running(true))
				r.api.Update("default", "web", func(pod *v1.Pod) { pod.Status.Phase = phase })
				time.Sleep(time.Minute)
				r.deliver(pod, running(true))
				got := r.api.Get("default", "web")
				assert.Equal(t, phase, got.Status.Phase)
				for _, name := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
					c := condition(got, name)
					assert.Equal(t, v1.ConditionFalse, c.Status, name)
					assert.Equal(t, reason, c.Reason, name)
				}
				r.writes()
				time.Sleep(time.Minute)
				r.deliver(pod, running(true))
				assert.Empty(t, r.writes(), "nothing is repeated")
			})
		})
	}
}

// While the watch is late the sink goes by the answers to its own writes.
func TestLateWatch(t *testing.T) {
	run(t, func(r *rig) {
		pod := r.api.Create(apiPod("web"))
		static := staticPod("static", "hash")
		synctest.Wait()
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb == "watch" || req.Verb == "list" {
				return nil, errors.New("connection refused")
			}
			return nil, nil
		})
		r.api.BreakWatches()
		synctest.Wait()
		r.deliver(pod, running(true))
		r.deliver(pod, running(false)) // as the watch still has it
		assert.Equal(t, v1.ConditionFalse, condition(r.api.Get("default", "web"), v1.PodReady).Status)
		r.deliver(static, running(false))
		r.deliver(static, running(true))
		assert.Equal(t, []string{
			"patch default/web status", "patch default/web status",
			"create default/static", "patch default/static status", "patch default/static status",
		}, r.writes())
		r.api.Before(nil)
		time.Sleep(10 * time.Second)
		assert.Empty(t, r.writes())
	})
}

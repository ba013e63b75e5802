package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// byKind counts requests by their verb and what they are for, without names.
func byKind(requests []string) map[string]int {
	out := map[string]int{}
	for _, request := range requests {
		verb, what, _ := strings.Cut(request, " ")
		what, sub, _ := strings.Cut(what, " ")
		kind := "pods"
		for part := range strings.SplitSeq(what, "/") {
			switch part {
			case "nodes", "leases", "events", "serviceaccounts":
				kind = part
			}
		}
		out[strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, kind, sub))]++
	}
	return out
}

// The calls in the life of a pod: docs/operate/differences/node.md has this table, with kubelet's.
func TestCallsInTheLifeOfAPod(t *testing.T) {
	onNode(t, func(r *rig) {
		r.after(time.Minute)
		r.requests()
		life := func(name string, policy v1.RestartPolicy, during func()) map[string]int {
			t.Helper()
			r.requests()
			pod := bound(name)
			pod.Spec.RestartPolicy = policy
			r.api.Create(pod)
			r.after(30 * time.Second)
			require.Equal(t, v1.PodRunning, r.api.Get("default", name).Status.Phase)
			during()
			r.after(time.Minute)
			require.Nil(t, r.api.Get("default", name))
			calls := byKind(r.requests())
			for _, other := range []string{"update leases", "patch nodes status"} {
				delete(calls, other)
			}
			t.Log(name, calls)
			return calls
		}
		deleted := life("deleted", v1.RestartPolicyAlways, func() { r.api.Delete("default", "deleted", nil) })
		assert.Equal(t, 1, deleted["delete pods"])
		assert.LessOrEqual(t, deleted["patch pods status"], 4)
		assert.Zero(t, deleted["get pods"])
		finished := life("finished", v1.RestartPolicyNever, func() {
			r.rt.Exit(fake.Target{Pod: "finished"}, 0)
			r.after(30 * time.Second)
			r.api.Delete("default", "finished", nil)
		})
		assert.LessOrEqual(t, finished["patch pods status"], 3)
	})
}

// The object of a pod goes when its containers have ended, and does not wait for the networks of
// all the pods that end with it.
func TestDeletionDoesNotWaitForSandboxes(t *testing.T) {
	onNode(t, func(r *rig) {
		const pods = 30
		for i := range pods {
			r.api.Create(bound(fmt.Sprintf("web-%d", i)))
		}
		r.after(time.Minute)
		require.Len(t, r.rt.Running(fake.Target{}), pods)
		for _, call := range []string{"StopPodSandbox", "RemovePodSandbox"} {
			r.rt.Inject(fake.Fault{Call: call, Delay: 2 * time.Second})
		}
		for i := range pods {
			r.api.Delete("default", fmt.Sprintf("web-%d", i), nil)
		}
		r.after(time.Second)
		assert.Empty(t, r.rt.Running(fake.Target{}))
		left := 0
		for i := range pods {
			if r.api.Get("default", fmt.Sprintf("web-%d", i)) != nil {
				left++
			}
		}
		assert.Zero(t, left)
		r.after(time.Minute)
		sandboxes, err := r.rt.ListPods(r.Context())
		require.NoError(t, err)
		assert.Empty(t, sandboxes)
	})
}

// An idle node writes its lease each 10 s and its status each 5 min; an idle pod costs nothing.
func TestIdleNode(t *testing.T) {
	onNode(t, func(r *rig) {
		r.api.Create(bound("web"))
		r.after(20 * time.Minute) // the first report after a change comes early, so that nodes spread
		require.Equal(t, v1.PodRunning, r.api.Get("default", "web").Status.Phase)
		r.requests()
		r.after(time.Hour)
		calls := byKind(r.requests())
		t.Log(calls)
		assert.InDelta(t, 353, calls["update leases"], 8, "each 10 s and up to 4 %% more")
		assert.InDelta(t, 12, calls["patch nodes status"], 1)
		delete(calls, "update leases")
		delete(calls, "patch nodes status")
		assert.Empty(t, calls)
	})
}

// Objects are protobuf unless the configuration says otherwise; patches are JSON.
func TestContentType(t *testing.T) {
	for contentType, want := range map[string]string{"": kruntime.ContentTypeProtobuf,
		kruntime.ContentTypeProtobuf: kruntime.ContentTypeProtobuf,
		kruntime.ContentTypeJSON:     kruntime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) {
			onNode(t, func(r *rig) {
				r.stop()
				r.change = func(c *Config, _ *kubeletkit.Options) { c.REST.ContentType = contentType }
				r.start()
				var mu sync.Mutex
				sent, accepted := map[string]map[string]bool{}, map[string]bool{}
				r.api.Before(func(req *apitest.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					if sent[req.Verb] == nil {
						sent[req.Verb] = map[string]bool{}
					}
					if len(req.Body) > 0 {
						sent[req.Verb][req.HTTP.Header.Get("Content-Type")] = true
					}
					if want == kruntime.ContentTypeProtobuf {
						assert.NotContains(t, req.HTTP.Header.Get("Accept"), "*/*")
						assert.Contains(t, req.HTTP.Header.Get("Accept"), kruntime.ContentTypeJSON)
					}
					first, _, _ := strings.Cut(req.HTTP.Header.Get("Accept"), ",")
					first, _, _ = strings.Cut(first, ";")
					accepted[first] = true
					return nil, nil
				})
				r.api.Create(bound("web"))
				r.after(time.Minute)
				require.Equal(t, v1.PodRunning, r.api.Get("default", "web").Status.Phase)
				assert.Equal(t, map[string]bool{want: true}, accepted)
				assert.Equal(t, map[string]bool{want: true}, sent["update"])
				assert.Equal(t, map[string]bool{want: true}, sent["create"])
				assert.Equal(t, map[string]bool{"application/strategic-merge-patch+json": true}, sent["patch"])
			})
		})
	}
}

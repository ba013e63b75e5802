package podsource_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

func TestSnapshotAndDeltas(t *testing.T) {
	api := apitest.New()
	run(t, api, podsource.Options{}, func(r *rig) {
		synctest.Wait()
		assert.True(t, r.src.Synced())
		assert.Equal(t, []string{"observer + - true", "set "}, r.received())

		api.Create(newPod("a"))
		assert.Equal(t, []string{"observer +a(api-1) - false", "apply +a(api-1) -[]"}, r.received())

		api.Create(mirror("m"))
		assert.Equal(t, []string{"observer +m(api-2) - false"}, r.received(), "a mirror pod is for observers only")
		assert.Len(t, r.src.Pods(), 2)

		other := newPod("other")
		other.Spec.NodeName = "elsewhere"
		api.Create(other)
		assert.Empty(t, r.received())

		api.Delete("default", "a", nil)
		assert.Equal(t, []string{"observer +a(api-1) - false", "apply +a(api-1) -[]"}, r.received(),
			"a graceful deletion is an update")
		api.Delete("default", "a", ptr.To[int64](0))
		api.Delete("default", "m", ptr.To[int64](0))
		assert.Equal(t, []string{"observer + -a(api-1) false", "apply + -[api-1]", "observer + -m(api-2) false"},
			r.received())
	})
}

// With a list in place of initial events it is the same, for servers before 1.32.
func TestServerWithoutWatchList(t *testing.T) {
	api := apitest.New()
	api.Create(newPod("a"))
	api.Before(func(r *apitest.Request) (*http.Response, error) {
		if r.HTTP.URL.Query().Get("sendInitialEvents") != "" {
			return apitest.Response(nil, errors.New("sendInitialEvents is forbidden")), nil
		}
		return nil, nil
	})
	run(t, api, podsource.Options{}, func(r *rig) {
		assert.Equal(t, []string{"observer +a(api-1) - true", "set a(api-1)"}, r.received())
		assert.Equal(t, []string{"list"}, api.Requests())
		api.Create(newPod("b"))
		assert.Equal(t, []string{"observer +b(api-2) - false", "apply +b(api-2) -[]"}, r.received())
	})
}

// A list that ends early is no list, however often it is repeated.
func TestListThatIsCutOff(t *testing.T) {
	api := apitest.New()
	api.Create(newPod("a"))
	cut := func(r *apitest.Request) (*http.Response, error) {
		if r.HTTP.URL.Query().Get("sendInitialEvents") != "" {
			// The initial events end before the bookmark.
			body := `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"default","uid":"x","resourceVersion":"7"},"spec":{"nodeName":"node"}}}`
			resp := apitest.Response(nil, nil)
			resp.Body = io.NopCloser(strings.NewReader(body))
			return resp, nil
		}
		if r.Verb == "list" {
			resp := apitest.Response(nil, nil)
			resp.Body = io.NopCloser(
				io.MultiReader(
					strings.NewReader(
						`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`),
					brokenReader{}))
			return resp, nil
		}
		return nil, nil
	}
	api.Before(cut)
	run(t, api, podsource.Options{}, func(r *rig) {
		time.Sleep(10 * time.Minute)
		assert.Empty(t, r.received())
		assert.False(t, r.src.Synced())
		assert.Less(t, len(api.Requests()), 600, "with back-off")

		api.Before(nil)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"observer +a(api-1) - true", "set a(api-1)"}, r.received())

		api.Before(cut) // later, what is known stays
		api.Compact()
		api.BreakWatches()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, r.received())
		assert.Len(t, r.src.Pods(), 1)
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// While the server is away nothing is removed, and what was missed comes within 5 s of its
// return: from the watch, or after 410 Gone from a list.
func TestOutage(t *testing.T) {
	for name, compact := range map[string]bool{"watch goes on": false, "410 Gone": true} {
		t.Run(name, func(t *testing.T) {
			api := apitest.New()
			for _, name := range []string{"a", "b", "c"} {
				api.Create(newPod(name))
			}
			run(t, api, podsource.Options{}, func(r *rig) {
				assert.Len(t, r.received(), 2)
				api.Before(func(*apitest.Request) (*http.Response,
					error) {
					return nil, errors.New("connection refused")
				})
				api.BreakWatches()
				time.Sleep(time.Minute)
				api.Delete("default", "a", ptr.To[int64](0))
				api.Update("default", "b", func(pod *v1.Pod) { pod.Labels = map[string]string{"changed": "yes"} })
				if compact {
					api.Compact()
				}
				time.Sleep(10 * time.Minute)
				assert.Empty(t, r.received())
				assert.Len(t, r.src.Pods(), 3)
				assert.True(t, r.src.Synced())

				api.Before(nil)
				time.Sleep(5 * time.Second)
				assert.Equal(t, []string{"observer +b(api-2) -a(api-1) true", "set b(api-2),c(api-3)"}, r.received(),
					"c has not changed, and is passed by the same pointer")
			})
		})
	}
}

// A watch that ends is opened again where it ended: there is no list, and nothing is lost.
func TestWatchEnds(t *testing.T) {
	api := apitest.New()
	run(t, api, podsource.Options{}, func(r *rig) {
		r.received()
		api.Create(newPod("a"))
		time.Sleep(time.Minute)
		r.received()
		for range 3 {
			api.BreakWatches()
			api.Create(newPod("b"))
			time.Sleep(10 * time.Second)
			assert.Len(t, r.received(), 2)
			api.Delete("default", "b", ptr.To[int64](0))
			time.Sleep(time.Minute)
			assert.Len(t, r.received(), 2)
		}
		assert.Empty(t, api.Requests(), "no lists")
	})
}

// A server that accepts requests and never answers delays the source, and does not end it.
func TestServerThatNeverAnswers(t *testing.T) {
	api := apitest.New()
	api.Create(newPod("a"))
	api.Before(apitest.Hang)
	run(t, api, podsource.Options{}, func(r *rig) {
		time.Sleep(30 * time.Minute)
		assert.Empty(t, r.received())
		api.Before(nil)
		time.Sleep(2*time.Minute + 5*time.Second) // what hangs has its deadline
		assert.Equal(t, []string{"observer +a(api-1) - true", "set a(api-1)"}, r.received())
		api.Before(apitest.Hang)
		api.BreakWatches()
		synctest.Wait()
		r.stop() // also while a request hangs
	})
}

// Old and repeated objects change nothing.
func TestOldObjects(t *testing.T) {
	api := apitest.New()
	first := api.Create(newPod("a"))
	run(t, api, podsource.Options{}, func(r *rig) {
		api.Update("default", "a", func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning })
		r.received()
		api.Event("MODIFIED", first)
		api.Event("MODIFIED", api.Get("default", "a"))
		assert.Empty(t, r.received())
		held, _ := r.src.ByUID(first.UID)
		assert.Equal(t, v1.PodRunning, held.Status.Phase)

		api.Delete("default", "a", ptr.To[int64](0))
		r.received()
		api.Event("ADDED", first)
		assert.Empty(t, r.received(), "its removal is newer")

		second := api.Create(newPod("a"))
		r.received()
		api.Event("DELETED", first)
		api.Event("MODIFIED", first)
		assert.Empty(t, r.received(), "the successor stays")
		_, ok := r.src.ByUID(second.UID)
		assert.True(t, ok)
	})
}

// A pod that was recreated while no watch looked is removed and added in one step.
func TestRecreatedPod(t *testing.T) {
	api := apitest.New()
	api.Create(newPod("a"))
	run(t, api, podsource.Options{}, func(r *rig) {
		r.received()
		again := newPod("a")
		again.UID = "again"
		again.ResourceVersion = "900"
		api.Event("MODIFIED", again) // a proxy that merges events
		assert.Equal(t, []string{"observer +a(again) -a(api-1) false", "apply +a(again) -[api-1]"}, r.received())
		_, ok := r.src.ByUID("api-1")
		assert.False(t, ok)
	})
}

// Nothing is requested before the node is registered.
func TestRegistered(t *testing.T) {
	api := apitest.New()
	opts := podsource.Options{Registered: func(ctx context.Context) error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	run(t, api, opts, func(r *rig) {
		time.Sleep(time.Hour - time.Nanosecond)
		assert.Empty(t, r.received())
		time.Sleep(time.Nanosecond)
		assert.Len(t, r.received(), 2)
		assert.Equal(t, "api", r.src.Name())
	})
	src, err := podsource.New(api.Client(), node,
		podsource.Options{Registered: func(context.Context) error { return errors.New("refused") }})
	require.NoError(t, err)
	assert.ErrorContains(t, src.Run(t.Context(), nil), "refused")
}

func TestNewNamesAllProblems(t *testing.T) {
	_, err := podsource.New(nil, "", podsource.Options{Observers: []func(podsource.Change){nil}})
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 3)
}

package listwatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig runs Run in a synctest bubble, with an API server that has one pod.
type rig struct {
	*apitest.Server
	store cache.Store

	mu     sync.Mutex
	errs   []error
	firsts int // of errs
}

func run(t *testing.T, before func(*apitest.Request) (*http.Response, error), test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{Server: apitest.New(), store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		r.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: v1.PodSpec{NodeName: "node"}})
		r.Before(before)
		client := r.client()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Run(ctx, Resource{
				Name: "pods", Client: client, Type: &v1.Pod{}, FieldSelector: "spec.nodeName=node",
				MaxBackoff: 8 * time.Second, Probe: true,
				API: Of(client.CoreV1().Pods("")),
				Failed: func(err error, first bool) {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.errs = append(r.errs, err)
					if first {
						r.firsts++
					}
				},
			}, r.store)
		}()
		test(t, r)
		began := time.Now()
		cancel()
		<-done
		assert.Zero(t, time.Since(began), "it ends at once")
	})
}

// client returns a client with the signal of package outage.
func (r *rig) client() kubernetes.Interface {
	signal := &outage.Signal{}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://apitest", QPS: -1},
		&http.Client{Transport: signal.Transport(r.Server)})
	if err != nil {
		panic(err)
	}
	return signal.Client(client)
}

func (r *rig) failures() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errs)
}

func (r *rig) pods() int {
	synctest.Wait()
	return len(r.store.List())
}

func refused(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

func TestRun(t *testing.T) {
	t.Parallel()
	run(t, nil, func(t *testing.T, r *rig) {
		assert.Equal(t, 1, r.pods())
		r.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: v1.PodSpec{NodeName: "node"}})
		assert.Equal(t, 2, r.pods())
		r.Compact()
		r.BreakWatches()
		time.Sleep(time.Minute)
		r.Delete("ns", "q", new(int64))
		assert.Equal(t, 1, r.pods())
		assert.Zero(t, r.failures())
	})
}

// The end of ctx is observed in each state: while a request hangs, and in each back-off.
func TestServerAway(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour} {
		for name, before := range map[string]func(*apitest.Request) (*http.Response,
			error){"refused": refused, "hangs": apitest.Hang} {
			t.Run(name+" "+wait.String(), func(t *testing.T) {
				t.Parallel()
				run(t, before, func(t *testing.T, r *rig) { time.Sleep(wait) })
			})
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	run(t, refused, func(t *testing.T, r *rig) {
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 62, r.failures(), 16, "one in 8 to 12 s")
		r.Before(nil)
		time.Sleep(12 * time.Second)
		assert.Equal(t, 1, r.pods())
		before := r.failures()
		r.Before(refused)
		r.BreakWatches()
		time.Sleep(2 * time.Second)
		assert.Greater(t, r.failures(), before, "the back-off begins anew")
		assert.Equal(t, 2, r.firsts)
	})
}

// A permission that comes a moment later is found within a second: that is how long lookups wait.
func TestForbiddenAtFirst(t *testing.T) {
	t.Parallel()
	forbidden := func(*apitest.Request) (*http.Response, error) {
		return apitest.Response(nil, apierrors.NewForbidden(v1.Resource("pods"),
			"", errors.New("no relationship found"))), nil
	}
	run(t, forbidden, func(t *testing.T, r *rig) {
		time.Sleep(200 * time.Millisecond)
		r.Before(nil)
		time.Sleep(600 * time.Millisecond)
		assert.Equal(t, 1, r.pods())
		assert.Equal(t, 1, r.failures())
	})
}

// A server that accepts requests and does not answer them is asked again.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	run(t, apitest.Hang, func(t *testing.T, r *rig) {
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 4, r.failures(), 2)
		r.Before(nil)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, r.pods())
	})
}

// crowd is a number of requests that no rig needs in its time. Then they hang: a loop without a pause
// would stop the virtual time.
const crowd = 2000

// A server that answers lists and refuses watches is asked with a back-off, also if every list
// is the end of an outage.
func TestListsWithoutWatches(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusForbidden, http.StatusGone, http.StatusInternalServerError} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			var lists, watches atomic.Int64
			run(t, func(req *apitest.Request) (*http.Response, error) {
				switch {
				case req.Verb != "watch":
					lists.Add(1)
					return nil, nil
				case watches.Add(1) > crowd:
					return apitest.Hang(req)
				}
				return apitest.Response(nil,
						&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
							Code: int32(code)}}),
					nil
			}, func(t *testing.T, r *rig) {
				time.Sleep(10 * time.Minute)
				assert.Equal(t, 1, r.pods())
				assert.InDelta(t, 64, lists.Load(), 20, "one in 8 to 12 s")
				assert.InDelta(t, 128, watches.Load(), 40)
			})
		})
	}
}

// Watches that end after an event each are opened with a back-off.
func TestWatchesThatEndSoon(t *testing.T) {
	t.Parallel()
	var watches atomic.Int64
	run(t, func(req *apitest.Request) (*http.Response, error) {
		if req.Verb != "watch" {
			return nil, nil
		}
		if watches.Add(1) > crowd {
			return apitest.Hang(req)
		}
		resp := apitest.Response(nil, nil)
		resp.Body = io.NopCloser(
			strings.NewReader(
				`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"200","annotations":{"k8s.io/initial-events-end":"true"}}}}`))
		resp.ContentLength = -1
		return resp, nil
	}, func(t *testing.T, _ *rig) {
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 64, watches.Load(), 20, "one in 8 to 12 s")
	})
}

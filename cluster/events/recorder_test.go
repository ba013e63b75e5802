package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var web = runtime.PodRef{UID: "u", Namespace: "shop", Name: "web"}

func warning(reason, message string) runtime.Event {
	return runtime.Event{Pod: web, Type: v1.EventTypeWarning, Reason: reason, Message: message}
}

// world is a Recorder that runs, in a synctest bubble, and its API server.
type world struct {
	*Recorder
	t      *testing.T
	client *apitest.Clientset

	mu sync.Mutex
	// fail returns the error of the n-th write. nil: none fails.
	fail  func(n int) error
	tries int
}

func (w *world) setFail(fail func(n int) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

func (w *world) countTries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries
}

func run(t *testing.T, opts Options, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: apitest.NewClientset()}
		w.client.PrependReactor("*", "events", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
			if a.GetVerb() == "list" {
				return false, nil, nil
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tries++
			if w.fail != nil {
				if err := w.fail(w.tries); err != nil {
					return true, nil, err
				}
			}
			return false, nil, nil
		})
		var err error
		w.Recorder, err = New(w.client, "node", opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(w)
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, w.Run(ctx), runtime.ErrAlreadyRunning)
	})
}

// events returns the Event objects as "reason: message x count", after all was written.
func (w *world) events() []string {
	w.t.Helper()
	synctest.Wait()
	var lines []string
	for _, e := range w.objects() {
		lines = append(lines, fmt.Sprintf("%s: %s x%d", e.Reason, e.Message, e.Count))
	}
	slices.Sort(lines)
	return lines
}

func (w *world) objects() []v1.Event {
	w.t.Helper()
	synctest.Wait()
	list, err := w.client.CoreV1().Events("").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	return list.Items
}

func TestObjects(t *testing.T) {
	t.Parallel()
	pods := func(uid types.UID) (*v1.Pod, bool) {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: "7"}}, uid == "u"
	}
	var node types.UID
	run(t, Options{Pod: pods, NodeUID: func() types.UID { return node }}, func(w *world) {
		w.Event(runtime.Event{Pod: web, FieldPath: "spec.containers{c}", Type: v1.EventTypeNormal, Reason: "Started",
			Message: "Container started", Count: 9})
		w.Event(runtime.Event{Pod: runtime.PodRef{UID: "static", Namespace: "shop", Name: "etcd-node"},
			Type: v1.EventTypeWarning, Reason: "FailedMount"})
		w.Event(runtime.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."})
		node = "n"
		w.Event(runtime.Event{Type: v1.EventTypeNormal, Reason: "NodeReady"})
		got := w.objects()
		require.Len(t, got, 4)
		slices.SortStableFunc(got,
			func(a, b v1.Event) int { return strings.Compare(a.InvolvedObject.Name, b.InvolvedObject.Name) })
		assert.Equal(t, v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "etcd-node",
			UID: "static"}, got[0].InvolvedObject)
		assert.Equal(t, v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node", UID: "node"},
			got[1].InvolvedObject, "the node is not registered")
		assert.Equal(t, "default", got[1].Namespace)
		assert.Equal(t, types.UID("n"), got[2].InvolvedObject.UID)
		want := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "u",
			ResourceVersion: "7", FieldPath: "spec.containers{c}"}
		assert.Equal(t, want, got[3].InvolvedObject)
		assert.Equal(t, int32(1), got[3].Count)
	})
}

// Messages are from containers, and each pod has others. Of ten for each reason no more than a hash is kept.
func TestMessagesAreNotKept(t *testing.T) {
	aggregate, local := keysOf(&v1.Event{Reason: "Unhealthy", Message: strings.Repeat("x", maxMessage)})
	assert.Less(t, len(aggregate)+len(local), 100)
	again, other := keysOf(&v1.Event{Reason: "Unhealthy", Message: "y"})
	assert.Equal(t, aggregate, again)
	assert.NotEqual(t, local, other)
}

func TestObjectOf(t *testing.T) {
	t.Parallel()
	now := metav1.Unix(100, 11)
	e := runtime.Event{Pod: web, FieldPath: "spec.containers{c}", Type: v1.EventTypeNormal, Reason: "Started",
		Message: "Container started", Annotations: map[string]string{"a": "b"}}
	assert.Equal(t, &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.174876e80b",
			Annotations: map[string]string{"a": "b"}},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "u",
			ResourceVersion: "7", FieldPath: "spec.containers{c}"},
		Type: "Normal", Reason: "Started", Message: "Container started", Count: 1, FirstTimestamp: now,
		LastTimestamp: now,
		Source:        v1.EventSource{Component: "kubelet", Host: "node"}, ReportingController: "kubelet",
		ReportingInstance: "node",
	}, objectOf(e, v1.EventSource{Component: "kubelet", Host: "node"}, "7", now.Time))
}

func TestRepeatsAreCounted(t *testing.T) {
	t.Parallel()
	run(t, Options{}, func(w *world) {
		first := metav1.Now()
		for range 7 {
			w.Event(warning("BackOff", "again"))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, []string{"BackOff: again x7"}, w.events())
		e := w.objects()[0]
		assert.True(t, e.FirstTimestamp.Equal(&first))
		assert.Equal(t, time.Minute, e.LastTimestamp.Sub(first.Time))
		// The API server has removed the object: it is written again.
		require.NoError(t, w.client.CoreV1().Events("shop").Delete(t.Context(), e.Name, metav1.DeleteOptions{}))
		w.Event(warning("BackOff", "again"))
		assert.Equal(t, []string{"BackOff: again x8"}, w.events())
	})
}

func TestSimilarEventsAreAggregated(t *testing.T) {
	t.Parallel()
	run(t, Options{}, func(w *world) {
		for i := range 12 {
			w.Event(warning("Unhealthy", fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		got := w.events()
		assert.Len(t, got, 10)
		assert.Contains(t, got, "Unhealthy: (combined from similar events): 11 x3")
	})
}

func TestOnePodWithManyEvents(t *testing.T) {
	t.Parallel()
	run(t, Options{}, func(w *world) {
		for range 100 {
			w.Event(warning("BackOff", "again"))
		}
		assert.Equal(t, []string{"BackOff: again x25"}, w.events(), "25 at once")
		other := warning("BackOff", "again")
		other.Pod = runtime.PodRef{UID: "v", Namespace: "shop", Name: "db"}
		w.Event(other)
		assert.Contains(t, w.events(), "BackOff: again x1", "the limit is that of one pod")
		time.Sleep(5 * time.Minute)
		w.Event(warning("BackOff", "again"))
		assert.Contains(t, w.events(), "BackOff: again x101", "those that were not written are counted")
	})
}

func away(int) error { return errors.New("connection refused") }

func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	run(t, Options{}, func(w *world) {
		w.setFail(away)
		for i := range maxQueued + 10 {
			w.Event(warning(fmt.Sprintf("R%d", i), "m"))
		}
		synctest.Wait()
		for i := range 3 {
			w.Event(warning(fmt.Sprintf("Later%d", i), "m"))
		}
		assert.Positive(t, w.Dropped())
		before := w.Dropped()
		time.Sleep(30 * time.Minute)
		assert.Equal(t, before, w.Dropped())
		w.setFail(nil)
		time.Sleep(11 * time.Second)
		assert.Contains(t, w.events(), "R0: m x1")
		assert.Contains(t, w.events(), "R20: m x1")
		assert.Less(t, w.countTries(), 400, "during the outage, one in 5 seconds at most")
	})
}

func TestAnHourOldEventIsDropped(t *testing.T) {
	t.Parallel()
	run(t, Options{}, func(w *world) {
		w.setFail(away)
		w.Event(warning("Old", "m"))
		time.Sleep(2 * time.Hour)
		w.setFail(nil)
		w.Event(warning("New", "m"))
		assert.Equal(t, []string{"New: m x1"}, w.events())
	})
}

func TestRejections(t *testing.T) {
	t.Parallel()
	events := v1.Resource("events")
	terminating := apierrors.NewForbidden(events, "e", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err   error
		tries int
	}{
		"forbidden":         {apierrors.NewForbidden(events, "e", errors.New("no")), 1},
		"invalid":           {apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Event").GroupKind(), "e", nil), 1},
		"namespace is gone": {apierrors.NewNotFound(v1.Resource("namespaces"), "shop"), 1},
		"terminating":       {terminating, 1},
		"too many requests": {apierrors.NewTooManyRequests("slow down", 1), maxTries},
		"internal error":    {apierrors.NewInternalError(errors.New("etcd")), maxTries},
		"unauthorized":      {apierrors.NewUnauthorized("expired"), maxTries},
		"already exists":    {apierrors.NewAlreadyExists(events, "e"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, Options{}, func(w *world) {
				w.setFail(func(n int) error {
					if n <= c.tries {
						return c.err
					}
					return nil
				})
				w.Event(warning("Bad", "m"))
				w.Event(warning("Good", "m"))
				time.Sleep(5 * time.Minute)
				assert.Equal(t, c.tries+1, w.countTries())
				assert.Equal(t, []string{"Good: m x1"}, w.events())
			})
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	assert.Len(t, cut(strings.Repeat("x", 1<<20)), maxMessage+len("…"))
	assert.Equal(t, "a\uFFFD", cut("a\xff"))
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := New(nil, "", Options{})
	require.EqualError(t, err, "events: the client is nil\nthe name of the node is empty")
}

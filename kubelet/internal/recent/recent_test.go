package recent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)}}
}

func event(uid, reason string) runtime.Event {
	return runtime.Event{Pod: runtime.RefOf(pod(uid)), Type: v1.EventTypeWarning, Reason: reason, Message: "m"}
}

func reasons(events []runtime.Event) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s×%d", e.Reason, e.Count))
	}
	return out
}

func TestEventsAreKeptWithTheirRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := recent.New(nil)
		emit := runtime.MergeEvents(p.Event)
		assert.Empty(t, p.Events("u"))
		for _, reason := range []string{"A", "B", "A", "A", "A"} { // the third repeat is not passed on
			emit(event("u", reason))
			time.Sleep(time.Second)
		}
		emit(event("other", "C"))
		assert.Equal(t, []string{"B×1", "A×4"}, reasons(p.Events("u")))
		assert.Equal(t, []string{"C×1"}, reasons(p.Events("other")))
		time.Sleep(time.Hour)
		emit(event("u", "A"))
		assert.Equal(t, []string{"B×1", "A×4", "A×1"}, reasons(p.Events("u")), "after a pause it is another event")
	})
}

func TestEventsAreBounded(t *testing.T) {
	p := recent.New(nil)
	for i := range 200 {
		p.Event(event("u", fmt.Sprint(i)))
	}
	kept := p.Events("u")
	assert.Len(t, kept, 50)
	assert.Equal(t, "199", kept[len(kept)-1].Reason)
	// Events of pods that never run do not pile up.
	for i := range 200 {
		p.Event(event(fmt.Sprint(i), "X"))
	}
	assert.Empty(t, p.Events("u"))
	assert.NotEmpty(t, p.Events("199"))
	assert.Empty(t, p.Gone())
}

// A container chooses the output of its probes, which is in the message.
func TestMessagesOfEventsAreBounded(t *testing.T) {
	p := recent.New(nil)
	e := event("u", "Unhealthy")
	e.Message = "a" + strings.Repeat("é", 5000)
	p.Event(e)
	require.Len(t, p.Events("u"), 1)
	assert.Equal(t, "a"+strings.Repeat("é", 511), p.Events("u")[0].Message)
}

func TestThePodsOnTheNode(t *testing.T) {
	ctx, p := context.Background(), recent.New(nil)
	for _, uid := range []string{"a", "b", "c"} {
		_, err := p.Deliver(ctx, pod(uid), v1.PodStatus{Phase: v1.PodRunning})
		require.NoError(t, err)
	}
	require.NoError(t, p.PodGone(ctx, runtime.RefOf(pod("b")), nil))
	p.Event(event("only an event", "A"))
	on := p.OnNode(func(ref runtime.PodRef) bool { return ref.UID != "c" })
	require.Len(t, on, 1)
	assert.Equal(t, types.UID("a"), on[0].UID)
	assert.Equal(t, v1.PodRunning, on[0].Status.Phase)
}

func TestThePodsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, changes := context.Background(), 0
		p := recent.New(func(runtime.PodRef) { changes++ })
		_, err := p.Deliver(ctx, pod("u"), v1.PodStatus{Phase: v1.PodRunning})
		require.NoError(t, err)
		p.Event(event("u", "A"))
		assert.Empty(t, p.Gone())

		require.NoError(t, p.PodGone(ctx, runtime.RefOf(pod("u")), &v1.PodStatus{Phase: v1.PodFailed}))
		time.Sleep(time.Minute)
		require.NoError(t, p.PodGone(ctx, runtime.RefOf(pod("u")), nil), "again")
		require.NoError(t, p.PodGone(ctx, runtime.RefOf(pod("never ran")), nil))
		gone := p.Gone()
		require.Len(t, gone, 2)
		assert.Equal(t, types.UID("never ran"), gone[0].Pod.UID)
		assert.Equal(t, "web", gone[0].Pod.Name)
		assert.Equal(t, v1.PodFailed, gone[1].Pod.Status.Phase)
		assert.Equal(t, time.Minute, time.Since(gone[1].At))
		assert.Len(t, p.Events("u"), 1)
		assert.Equal(t, 5, changes, "the event is one")

		// A pod of the same UID comes back.
		_, err = p.Deliver(ctx, pod("u"), v1.PodStatus{Phase: v1.PodPending})
		require.NoError(t, err)
		assert.Len(t, p.Gone(), 1)

		for i := range 200 {
			require.NoError(t, p.PodGone(ctx, runtime.RefOf(pod(fmt.Sprint(i))), nil))
		}
		gone = p.Gone()
		assert.Len(t, gone, 100)
		assert.Equal(t, types.UID("199"), gone[0].Pod.UID)
	})
}

func Example() {
	pods := recent.New(nil)
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	_, _ = pods.Deliver(context.Background(), web, v1.PodStatus{Phase: v1.PodRunning})
	pods.Event(runtime.Event{Pod: runtime.RefOf(web), Reason: "Killing"})
	_ = pods.PodGone(context.Background(), runtime.RefOf(web), &v1.PodStatus{Phase: v1.PodSucceeded})
	for _, g := range pods.Gone() {
		fmt.Println(g.Pod.Name, g.Pod.Status.Phase, pods.Events(g.Pod.UID)[0].Reason)
	}
	// Output: web Succeeded Killing
}

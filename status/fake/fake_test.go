package fake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}

func TestWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := fake.NewSink()
		m, err := status.New(status.Options{Sink: sink, DeliveryTimeout: time.Hour})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()

		conflict := errors.New("conflict")
		sink.Fail(2, conflict)
		m.Set(web, v1.PodStatus{Phase: v1.PodPending})
		_, err = sink.UntilPhase(ctx, "1", v1.PodPending)
		require.NoError(t, err)
		all := sink.Deliveries("1")
		require.Len(t, all, 3)
		require.ErrorIs(t, all[1].Err, conflict)
		assert.Positive(t, all[2].At.Sub(all[1].At), "there is a back-off")

		sink.SetDelay(time.Minute)
		began := time.Now()
		m.Set(web, v1.PodStatus{Phase: v1.PodRunning})
		st, err := sink.UntilPhase(ctx, "1", v1.PodRunning)
		require.NoError(t, err)
		assert.Equal(t, v1.PodRunning, st.Phase)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Zero(t, sink.Overlaps())

		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err = sink.UntilPhase(short, "1", v1.PodFailed)
		require.ErrorContains(t, err, `phase "Running" of pod 1 after 4 deliveries`)
		_, ok := sink.Latest("2")
		assert.False(t, ok)

		sink.SetDelay(0)
		sink.Fail(1, conflict)
		assert.False(t, sink.Gone("1"))
		m.Forget("1")
		require.NoError(t, sink.UntilGone(ctx, "1"))
		calls := sink.Calls("1")
		last := calls[len(calls)-1]
		assert.True(t, last.Gone)
		assert.Equal(t, v1.PodRunning, last.Status.Phase)
		require.ErrorIs(t, calls[len(calls)-2].Err, conflict)
		assert.Len(t, sink.Deliveries("1"), len(calls)-2)
		m.Set(web, v1.PodStatus{})
		_, err = sink.Until(ctx, "1", func(s v1.PodStatus) bool { return s.Phase == "" })
		require.NoError(t, err)
		assert.False(t, sink.Gone("1"), "the UID came again")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestBrokenContractIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := fake.NewSink()
		sink.SetDelay(time.Second)
		sink.Fail(-1, status.ErrGone)
		for range 2 {
			go func() { _, _ = sink.Deliver(t.Context(), web, v1.PodStatus{}) }()
		}
		time.Sleep(time.Minute)
		assert.Equal(t, 1, sink.Overlaps())
		require.ErrorIs(t, sink.Deliveries("")[1].Err, status.ErrGone)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := sink.Deliver(ctx, web, v1.PodStatus{})
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestHook(t *testing.T) {
	sink := fake.NewSink()
	broken := errors.New("broken")
	sink.SetHook(func(_ context.Context, d fake.Delivery) error {
		if d.Gone {
			return broken
		}
		return nil
	})
	_, err := sink.Deliver(t.Context(), web, v1.PodStatus{})
	require.NoError(t, err)
	require.ErrorIs(t, sink.PodGone(t.Context(), runtime.RefOf(web), nil), broken)
}

func TestManager(t *testing.T) {
	m := fake.NewManager()
	m.Set(web, v1.PodStatus{Phase: v1.PodPending})
	m.Set(web, v1.PodStatus{Phase: v1.PodRunning})
	assert.False(t, m.Terminated("1"))
	go m.Terminate(web)
	require.NoError(t, m.UntilTerminated(t.Context(), "1"))
	s, err := m.Until(t.Context(), "1", func(s v1.PodStatus) bool { return s.Phase == v1.PodFailed })
	require.NoError(t, err)
	assert.Equal(t, v1.PodFailed, s.Phase)
	history := m.History("1")
	require.Len(t, history, 3)
	assert.Equal(t, v1.PodRunning, history[1].Phase)

	m.Forget("1")
	_, known := m.Get("1")
	assert.False(t, known)
	assert.Empty(t, m.History("1"))
	assert.False(t, m.Terminated("1"))
	m.Set(web, v1.PodStatus{Phase: v1.PodPending})
	m.PodEnded(runtime.RefOf(web))
	_, known = m.Get("1")
	assert.False(t, known)
	assert.Equal(t, []runtime.PodRef{runtime.RefOf(web)}, m.Ended())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.Until(ctx, "1", func(v1.PodStatus) bool { return false })
	require.ErrorContains(t, err, `phase "" of pod 1, set 0 times`)
}

func Example() {
	sink := fake.NewSink()
	ctx := context.Background()
	sink.Fail(1, errors.New("conflict"))
	for range 2 { // as a status.Store does
		_, err := sink.Deliver(ctx, web, v1.PodStatus{Phase: v1.PodRunning})
		fmt.Println("delivered:", err)
	}
	s, err := sink.UntilPhase(ctx, web.UID, v1.PodRunning)
	fmt.Println(s.Phase, err)
	// Output:
	// delivered: conflict
	// delivered: <nil>
	// Running <nil>
}

func TestManagerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fake.NewManager()
		_, ok := m.Get("1")
		assert.False(t, ok)
		go func() {
			for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning} {
				time.Sleep(time.Minute)
				m.Set(web, v1.PodStatus{Phase: phase})
			}
			time.Sleep(time.Minute)
			m.Terminate(web)
		}()
		began := time.Now()
		_, err := m.Until(t.Context(), "1", func(s v1.PodStatus) bool { return s.Phase == v1.PodRunning })
		require.NoError(t, err)
		require.NoError(t, m.UntilTerminated(t.Context(), "1"))
		assert.Equal(t, 3*time.Minute, time.Since(began))
		history := m.History("1")
		assert.Equal(t, []v1.PodPhase{v1.PodPending, v1.PodRunning}, []v1.PodPhase{history[0].Phase, history[1].Phase})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = m.Until(ctx, "1", func(s v1.PodStatus) bool { return s.Phase == v1.PodUnknown })
		require.ErrorContains(t, err, "of pod 1, set 3 times")
	})
}

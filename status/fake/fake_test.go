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

	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}

func TestWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := fake.NewSink()
		m, err := status.New(status.Options{Sink: sink})
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
			go func() { _ = sink.Deliver(t.Context(), web, v1.PodStatus{}) }()
		}
		time.Sleep(time.Minute)
		assert.Equal(t, 1, sink.Overlaps())
		require.ErrorIs(t, sink.Deliveries("")[1].Err, status.ErrGone)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, sink.Deliver(ctx, web, v1.PodStatus{}), context.Canceled)
	})
}

func Example() {
	sink := fake.NewSink()
	ctx := context.Background()
	sink.Fail(1, errors.New("conflict"))
	for range 2 { // what a status.Manager does
		fmt.Println("delivered:", sink.Deliver(ctx, web, v1.PodStatus{Phase: v1.PodRunning}))
	}
	s, err := sink.UntilPhase(ctx, web.UID, v1.PodRunning)
	fmt.Println(s.Phase, err)
	// Output:
	// delivered: conflict
	// delivered: <nil>
	// Running <nil>
}

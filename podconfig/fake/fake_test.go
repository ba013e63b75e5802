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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func makePod(name string) *v1.Pod {
	return testpod.New(name, testpod.UID(types.UID(name)), testpod.Containers("main"))
}

// deliveries runs the source once and gives the names of what it delivers.
func deliveries(t *testing.T, s *fake.Source) (got <-chan string, done <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	names, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, fake.NewSink("", func(pods []*v1.Pod) {
			text := ""
			for _, p := range pods {
				text += p.Name + " "
			}
			names <- text
		}))
	}()
	synctest.Wait()
	return names, ended, cancel
}

func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.NewSource("api")
		assert.Equal(t, "api", s.Name())
		got, done, stop := deliveries(t, s)
		assert.Empty(t, got, "nothing was said yet")
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { s.Set(makePod("a"), makePod("b")) }, "a b "},
			{func() { s.Put(makePod("a"), makePod("c")) }, "b a c "},
			{func() { s.Remove("b", "nobody") }, "a c "},
			{func() { s.Set() }, ""},
		} {
			step.do()
			require.NoError(t, s.UntilDelivered(t.Context()))
			assert.Equal(t, step.want, <-got)
		}
		unnamed := makePod("a")
		unnamed.UID = ""
		s.Put(unnamed)
		assert.Equal(t, "a ", <-got)
		s.Put(unnamed)
		assert.Equal(t, "a ", <-got)
		stop()
		require.NoError(t, <-done)
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.NewSource("test")
		s.Set(makePod("a"))
		got, done, _ := deliveries(t, s)
		assert.Equal(t, "a ", <-got)
		lost := errors.New("connection lost")
		s.Fail(lost)
		require.ErrorIs(t, <-done, lost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.UntilDelivered(ctx), context.DeadlineExceeded)

		got, done, _ = deliveries(t, s)
		assert.Equal(t, "a ", <-got, "delivered again")
		assert.Equal(t, 2, s.Runs())
		s.Complete()
		require.NoError(t, <-done)
	})
}

func TestWithTheMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.NewSource("api")
		mux, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{s}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mux.Run(ctx) }()
		mine := makePod("a")
		s.Set(mine)
		change := <-mux.Changes()
		assert.Equal(t, podconfig.Add, change.Op)
		mine.Spec.Containers[0].Image = "image:2" // is not shared
		assert.Equal(t, "image:1", change.Pods[0].Spec.Containers[0].Image)
		s.Fail(errors.New("connection lost"))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 2, s.Runs(), "the mux runs it again")
		s.Remove("a")
		assert.Equal(t, podconfig.Remove, (<-mux.Changes()).Op)
		cancel()
		require.NoError(t, <-done)
	})
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	src := fake.NewSource("api")
	src.Set(makePod("web"))
	done := make(chan error)
	go func() {
		done <- src.Run(ctx, fake.NewSink("", func(pods []*v1.Pod) { fmt.Println("wanted:", len(pods)) }))
	}()
	fmt.Println(src.UntilDelivered(ctx))
	cancel()
	fmt.Println(<-done)
	// Output:
	// wanted: 1
	// <nil>
	// <nil>
}

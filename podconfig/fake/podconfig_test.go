package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewConfig()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- c.Run(ctx) }()
		assert.False(t, c.SourcesReady())
		c.SetSourcesReady(true)
		assert.True(t, c.SourcesReady())

		change := podconfig.Change{Op: podconfig.Add, Source: "api", Pods: []*v1.Pod{makePod("a")}}
		go func() { done <- c.Push(ctx, change) }()
		assert.Equal(t, change, <-c.Changes())
		require.NoError(t, <-done)

		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		require.ErrorIs(t, c.Push(short, change), context.DeadlineExceeded, "nobody reads")
		require.ErrorIs(t, c.Run(ctx), runtime.ErrAlreadyRunning)

		go func() { done <- c.Push(t.Context(), change) }()
		synctest.Wait()
		cancel()
		errs := []error{<-done, <-done}
		assert.Contains(t, errs, fake.ErrEnded, "a push that waits ends too")
		assert.Contains(t, errs, error(nil))
		_, open := <-c.Changes()
		assert.False(t, open)
		require.ErrorIs(t, c.Push(t.Context(), change), fake.ErrEnded)
	})
}

package pleg_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// hasty is a runtime that answers just before a deadline that it has passed, as a server with a clock of its own does.
type hasty struct{}

func (hasty) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	deadline, _ := ctx.Deadline()
	time.Sleep(time.Until(deadline) - time.Millisecond)
	return nil, context.DeadlineExceeded
}

func TestTheDeadlineOfTheAgentIsNoFailureOfTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged atomic.Int32
		g := pleg.NewGeneric(hasty{}, runtime.NewCache(runtime.ListInspector(hasty{}), runtime.CacheOptions{}),
			pleg.Options{
				Observer: runtime.Observer{Logger: funcr.New(func(string, string) { logged.Add(1) }, funcr.Options{})},
			})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, g.Run(ctx))
		assert.Zero(t, logged.Load())
	})
}

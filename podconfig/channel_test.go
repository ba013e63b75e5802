package podconfig_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
)

func TestChannelAndStatic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan []*v1.Pod)
		mux, err := podconfig.New(podconfig.Options{Sources: []podconfig.Source{podconfig.NewChannel("mine", sent),
			podconfig.NewStatic("fixed", testPod("1", "a"))}})
		require.NoError(t, err)
		r := &rig{t: t, mux: mux}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- mux.Run(ctx) }()
		assert.Equal(t, []string{"ADD fixed a/1"}, r.read())
		assert.False(t, mux.SourcesReady())
		sent <- nil
		assert.Equal(t, []string{"ADD mine"}, r.read())
		assert.True(t, mux.SourcesReady())
		sent <- []*v1.Pod{testPod("2", "b"), testPod("3", "c")}
		assert.Equal(t, []string{"ADD mine b/2 c/3"}, r.read())
		sent <- []*v1.Pod{testPod("3", "c", image("x"))}
		assert.Equal(t, []string{"REMOVE mine b/2", "UPDATE mine c/3"}, r.read())
		close(sent)
		time.Sleep(time.Hour)
		assert.Empty(t, r.read(), "what was sent last stays")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestChannelEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		require.NoError(t, podconfig.NewChannel("mine", make(chan []*v1.Pod)).Run(ctx, nil))
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

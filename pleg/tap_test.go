package pleg_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/fake"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestATapConforms runs the suite of generators.
func TestATapConforms(t *testing.T) {
	plegtest.Suite(t,
		plegtest.Factory{New: func(_ *testing.T, rt *plegtest.Runtime, cache *runtime.Cache) pleg.Generator {
			return pleg.Tap(pleg.NewEvented(rt, cache, pleg.EventedOptions{}), func(pleg.PodEvents) {})
		}})
}

// TestATapWithASlowReader asserts that the tap has each event at once, and the reader all of them merged.
func TestATapWithASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := fake.New(fake.Options{})
		var got [][]pleg.Event
		g := pleg.Tap(source, func(pod pleg.PodEvents) { got = append(got, pod.Events) })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		started := pleg.Event{Type: pleg.ContainerStarted, Name: "web"}
		died := pleg.Event{Type: pleg.ContainerDied, Name: "web"}
		source.Push(ref, started)
		synctest.Wait()
		source.Push(ref, died)
		synctest.Wait()
		assert.Equal(t, [][]pleg.Event{{started}, {died}}, got)
		assert.Equal(t, pleg.PodEvents{Pod: ref, Events: []pleg.Event{started, died}}, <-g.Watch())

		source.Push(ref, started) // nobody reads it
		synctest.Wait()
		stop()
		require.NoError(t, <-ended)
		_, open := <-g.Watch()
		assert.False(t, open)
		require.ErrorIs(t, g.Run(t.Context()), runtime.ErrAlreadyRunning)
	})
}

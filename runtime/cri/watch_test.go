package cri_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// TestWatchEvents watches over a socket. Until the stream is known to be established,
// nothing happens to the pod unless the test does it.
func TestWatchEvents(t *testing.T) {
	announced, unannounced := fake.EventStream{}, fake.EventStream{Unannounced: true}
	listening := func(t *testing.T, rt *fake.Runtime) {
		assert.NoError(t, rt.Until(t.Context(), func() bool { n, _ := rt.Listeners(); return n > 0 }))
	}
	tooSlow := status.Error(codes.ResourceExhausted, "too slow")
	for _, tt := range []struct {
		name string
		opts fake.Options
		// meanwhile runs beside the call.
		meanwhile func(t *testing.T, rt *fake.Runtime, cancel func())
		// on runs in the callbacks.
		on    func(rt *fake.Runtime, what string, cancel func())
		calls []string
		check func(t *testing.T, err error)
	}{
		{
			name: "a header says that the stream stands",
			opts: fake.Options{Events: announced},
			on: func(rt *fake.Runtime, what string, _ func()) {
				if what == "established" { // no event before
					rt.Exit(fake.Target{Container: "c0"}, 1)
					rt.Exit(fake.Target{Container: "c1"}, 1)
					rt.KillSandbox(fake.Target{})
					rt.BreakEvents(tooSlow)
				}
			},
			calls: []string{"established", "c2", "c3", "s1"},
			check: func(t *testing.T, err error) {
				assert.EqualError(t, err, "GetContainerEvents: too slow")
				assert.NotErrorIs(t, err, runtime.ErrUnavailable)
				assert.NotErrorIs(t, err, errors.ErrUnsupported)
			},
		},
		{
			name: "else the first event does",
			opts: fake.Options{Events: unannounced},
			meanwhile: func(t *testing.T, rt *fake.Runtime, _ func()) {
				listening(t, rt)
				rt.Exit(fake.Target{Container: "c0"}, 1)
				rt.BreakEvents(tooSlow)
			},
			calls: []string{"established", "c2"},
			check: func(t *testing.T, err error) { assert.Error(t, err) },
		},
		{
			name: "a stream that never stood",
			opts: fake.Options{Events: unannounced},
			meanwhile: func(t *testing.T, rt *fake.Runtime, _ func()) {
				listening(t, rt)
				rt.BreakEvents(nil)
			},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, cri.ErrStreamEnded) },
		},
		{
			name:  "no such stream",
			opts:  fake.Options{Without: []string{"GetContainerEvents"}},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, errors.ErrUnsupported) },
		},
		{
			name: "the context ends",
			opts: fake.Options{Events: unannounced},
			meanwhile: func(t *testing.T, rt *fake.Runtime, _ func()) {
				listening(t, rt)
				rt.Exit(fake.Target{Container: "c0"}, 1)
			},
			on: func(_ *fake.Runtime, what string, cancel func()) {
				if what == "c2" {
					cancel()
				}
			},
			calls: []string{"established", "c2"},
			check: func(t *testing.T, err error) { assert.ErrorIs(t, err, context.Canceled) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			served := fake.New(tt.opts)
			require.NoError(t, served.Seed(fake.Pods(1, 2)...))
			path := socket(t)
			serve(t, path, served)
			client := dial(t, path, cri.Options{CallTimeout: time.Nanosecond}) // bounds no stream
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				if tt.meanwhile != nil {
					tt.meanwhile(t, served, cancel)
				}
			}()
			var calls []string // without a lock: this goroutine makes all calls
			note := func(what string) {
				calls = append(calls, what)
				if tt.on != nil {
					tt.on(served, what, cancel)
				}
			}
			err := client.WatchEvents(ctx, func() { note("established") }, func(h runtime.Hint) { note(h.ID) })
			tt.check(t, err)
			assert.Equal(t, tt.calls, calls)
			<-done
		})
	}
}

// TestWatchEventsOfARuntimeThatGoesAway needs no timeout to find out.
func TestWatchEventsOfARuntimeThatGoesAway(t *testing.T) {
	path := socket(t)
	rt := dial(t, path, cri.Options{})
	err := rt.WatchEvents(t.Context(), nil, nil)
	assert.ErrorIs(t, err, runtime.ErrUnavailable, "there is no socket")

	stop := serve(t, path, fake.New(fake.Options{}))
	require.Eventually(t, func() bool { return rt.Check(t.Context()) == nil }, time.Minute, 20*time.Millisecond)
	established := make(chan struct{})
	go func() {
		<-established
		stop()
	}()
	err = rt.WatchEvents(t.Context(), func() { close(established) }, nil)
	assert.ErrorIs(t, err, runtime.ErrUnavailable)
}

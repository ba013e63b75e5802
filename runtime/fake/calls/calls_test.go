package calls_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web = runtime.PodRef{UID: "1", Namespace: "default", Name: "web"}
	db  = runtime.PodRef{UID: "2", Namespace: "default", Name: "db"}
)

func TestFailures(t *testing.T) {
	var l calls.Log
	first, second := errors.New("first"), errors.New("second")
	l.Fail("Do", "1", 1, first)
	l.Fail("Do", "", 2, second)
	l.Fail("Other", "", -1, first)
	did := 0
	do := func(ref runtime.PodRef) error {
		return l.Do(t.Context(), calls.Call{Method: "Do", Pods: []runtime.PodRef{ref}},
			func() error { did++; return nil })
	}
	require.ErrorIs(t, do(db), second)
	require.ErrorIs(t, do(web), first)
	require.ErrorIs(t, do(web), second)
	require.NoError(t, do(web))
	assert.Equal(t, 1, did, "what has failed has done nothing")
	for range 3 {
		require.ErrorIs(t, l.Do(t.Context(), calls.Call{Method: "Other"}, nil), first)
	}
	assert.Equal(t, []string{"Do default/web", "Do default/web", "Do default/web"}, l.Transcript("1"))
	require.ErrorIs(t, l.Calls("1")[0].Err, first)
	l.Forget()
	assert.Empty(t, l.Calls(""))
}

func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l calls.Log
		release := l.Hold("Do", "1")
		l.Hold("Do", "2")
		ended := make(chan error, 2)
		ctx, cancel := context.WithCancelCause(t.Context())
		for _, ref := range []runtime.PodRef{web, db} {
			go func() { ended <- l.Do(ctx, calls.Call{Method: "Do", Pods: []runtime.PodRef{ref}, Detail: "it"}, nil) }()
		}
		call, err := l.UntilCalled(t.Context(), "Do", "1")
		require.NoError(t, err)
		assert.Equal(t, "Do default/web it", call.String())
		assert.True(t, call.Ended.IsZero())
		time.Sleep(time.Minute)
		release()
		release()
		require.NoError(t, <-ended)
		gone := errors.New("gone")
		cancel(gone)
		require.ErrorIs(t, <-ended, gone)

		l.Forget()
		release = l.Hold("Note", "1")
		noted := make(chan time.Time, 1)
		go l.Note(calls.Call{Method: "Note", Pods: []runtime.PodRef{web}}, func() { noted <- time.Now() })
		l.Note(calls.Call{Method: "Note", Pods: []runtime.PodRef{db}}, nil)
		synctest.Wait()
		assert.Empty(t, noted, "it waits")
		release()
		<-noted

		l.Forget()
		go func() {
			time.Sleep(time.Minute)
			_ = l.Do(t.Context(), calls.Call{Method: "Late", Pods: []runtime.PodRef{{UID: "3"}}}, nil)
		}()
		began := time.Now()
		_, err = l.UntilCalled(t.Context(), "Late", "")
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err = l.UntilCalled(short, "Never", "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "there is: Late 3")
	})
}

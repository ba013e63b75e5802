package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var rec fake.Recorder
		rt := fake.New(fake.Options{Dir: dir, Event: rec.Event})
		web := makePod("web", "main")
		go func() {
			time.Sleep(time.Minute)
			_, err := rt.Sync(t.Context(), web)
			assert.NoError(t, err)
			rec.Event(runtime.Event{Pod: runtime.RefOf(makePod("other")), Type: "Warning", Reason: "Evicted",
				Message: "too big"})
		}()
		ev, err := rec.UntilEvent(t.Context(), fake.Target{Pod: "web", Container: "main"}, "Started")
		require.NoError(t, err)
		assert.Equal(t, "spec.containers{main}", ev.FieldPath)
		evicted, err := rec.UntilEvent(t.Context(), fake.Target{}, "Evicted")
		require.NoError(t, err)
		assert.Equal(t, "Warning default/other Evicted: too big", evicted.String())
		assert.Len(t, rec.Events(fake.Target{Pod: "other"}), 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = rec.UntilEvent(ctx, fake.Target{Pod: "other"}, "Started")
		require.ErrorContains(t, err, "there is: Warning default/other Evicted: too big")
	})
}

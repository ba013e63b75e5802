package underway_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/underway"
)

// The innermost call that is slow is named, with those that it is part of, and the step unless that is hidden.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5 * time.Second
		var track underway.Track
		began := time.Now()
		track.Reset(began)
		ctx := underway.With(t.Context(), &track)
		slow := func() underway.Slow { return track.Slow(time.Now(), limit) }
		shown, hidden := &underway.Step{Name: "step"}, &underway.Step{Name: "hidden", Hidden: true}

		underway.From(ctx).Set(shown)
		time.Sleep(limit - 1)
		assert.Zero(t, slow())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, underway.Slow{Name: "step", Since: began}, slow())

		outer := underway.Begin(ctx, "", "volume", "data")
		time.Sleep(time.Second)
		child, cancel := context.WithCancel(outer)
		inner := underway.Begin(child, "main", "call", "")
		time.Sleep(limit - time.Second)
		assert.Equal(t, underway.Slow{Name: "step: volume data", Since: began.Add(limit)}, slow())
		time.Sleep(time.Second)
		want := underway.Slow{Container: "main", Name: "step: volume data: call", Since: began.Add(limit + time.Second)}
		assert.Equal(t, want, slow())
		track.Set(hidden)
		want.Name = "volume data: call"
		assert.Equal(t, want, slow())
		inner.End()
		outer.End()
		cancel()
		assert.Zero(t, slow(), "another step has begun")
		time.Sleep(limit)
		assert.Equal(t, "hidden", slow().Name)
		track.Set(nil)
		assert.Zero(t, slow())

		without := underway.Begin(t.Context(), "", "call", "")
		without.End()
		(*underway.Track)(nil).Set(shown)
		assert.Nil(t, underway.From(without))
	})
}

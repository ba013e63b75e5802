package pleg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestHeldPodIsLookedAtOnce: the worker that changes a pod reads it afterwards, and nothing
// else does.
func TestHeldPodIsLookedAtOnce(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(fmt.Sprintf("hints come after %s", late), func(t *testing.T) {
			inEvented(t, pleg.EventedOptions{}, func(r *rig) {
				r.settled()
				r.Do(
					func(
						s *plegtest.State) {
						s.Stream.Delays = func() []time.Duration { return []time.Duration{late} }
					})
				r.g.Hold("p")
				r.Set("p", sbx("s", "ready"))
				r.pass(10 * time.Millisecond)
				r.Set("p", sbx("s", "ready"), ctr("a", "running"))
				r.pass(10 * time.Millisecond)
				assert.Zero(t, r.Inspections("p"))
				r.g.Release("p")
				_, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now()) // the worker looks
				require.NoError(t, err)
				r.pass(time.Second)
				assert.LessOrEqual(t, r.Inspections("p"), 2, "the worker's, and one of Release that could not share it")
				if late > 0 {
					assert.Equal(t, 1, r.Inspections("p"), "later hints are about what is known")
				}
				assert.Equal(t, []string{"p[SandboxStarted s ContainerStarted a]"}, r.drain())
			})
		})
	}
}

func TestHintsAboutAHeldPodAreNotLost(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		before := r.Inspections("p")
		r.g.Hold("p")
		r.g.Hold("p")
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(time.Second)
		r.g.Release("p")
		r.pass(time.Second)
		assert.Empty(t, r.drain(), "held once more")
		assert.Equal(t, before, r.Inspections("p"))

		r.g.Relist() // sees it, and does not call it missed
		r.pass(2 * time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		assert.Empty(t, r.metrics.now().missed)

		r.Set("p", sbx("s", runtime.SandboxNotReady), ctr("a", "exited"))
		r.pass(time.Second)
		assert.Empty(t, r.drain())
		r.g.Release("p")
		assert.Equal(t, []string{"p[SandboxDied s]"}, r.drain(), "at once")
		assert.Zero(t, pleg.Held(r.g.(*pleg.Evented)))
	})
}

func TestReleaseKeepsEachHint(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.g.Hold("p")
		r.Do(func(s *plegtest.State) { s.Stream.Silent = true })
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p"), ID: "a", Event: runtime.HintStopped})
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p"), ID: "a", Event: runtime.HintStarted}) // overtaken
		r.pass(time.Second)
		r.g.Release("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
	})
}

func TestHeldNewPodIsNotMissed(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.settled()
		r.g.Hold("new")
		r.Set("new", sbx("s", "ready")) // and now an image is pulled
		r.pass(10 * time.Millisecond)
		r.g.Relist()
		r.pass(5 * time.Second)
		assert.Empty(t, r.metrics.now().missed)
		assert.Equal(t, 300*time.Second, r.period())
		attempts := len(r.Opened())
		for i := range 8 {
			uid := types.UID(fmt.Sprint("n", i))
			r.g.Hold(uid)
			r.Set(uid, sbx("s"+string(uid), "ready"))
			r.pass(3 * time.Second)
		}
		assert.Equal(t, attempts, len(r.Opened()), "stream was given up")
		assert.Empty(t, r.metrics.now().missed)
	})
}

func TestWhatWasHeldExcusesNothingLater(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.g.Hold("p")
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(10 * time.Millisecond)
		_, err := r.cache.Newer(r.Context(), plegtest.Ref("p"), r.cache.Now())
		require.NoError(t, err)
		r.g.Release("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		r.Do(func(s *plegtest.State) { s.Stream.Silent = true })
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"), ctr("b", "running"))
		r.g.Relist()
		r.pass(3 * time.Second)
		assert.Equal(t, []string{"p[ContainerStarted b]"}, r.drain())
		assert.Equal(t, []int{1}, r.metrics.now().missed)
	})
}

func TestSandboxThatWasNotReadyYet(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", runtime.SandboxNotReady))
		r.settled()
		r.Set("p", sbx("s", "ready"))
		r.pass(time.Second)
		assert.Equal(t, "s=ready", r.cached("p"))
	})
}

package pleg

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestHeldPodIsLookedAtOnce: who changes a pod reads it after, and nobody else does.
func TestHeldPodIsLookedAtOnce(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(fmt.Sprintf("hints come after %s", late), func(t *testing.T) {
			inEvented(t, EventedOptions{}, func(r *rig) {
				r.settled()
				r.do(func() { r.events.fate = func() []time.Duration { return []time.Duration{late} } })
				r.g.news.hold("p")
				r.set("p", sbx("s", "ready"))
				r.pass(10 * time.Millisecond)
				r.set("p", sbx("s", "ready"), ctr("a", "running"))
				r.pass(10 * time.Millisecond)
				assert.Zero(t, r.inspections("p"))
				(&Evented{r.g}).Release("p")
				_, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now()) // the worker looks
				require.NoError(t, err)
				r.pass(time.Second)
				assert.LessOrEqual(t, r.inspections("p"), 2, "the worker's, and one of Release that could not share it")
				if late > 0 {
					assert.Equal(t, 1, r.inspections("p"), "what comes later says nothing new")
				}
				assert.Equal(t, []string{"p[SandboxStarted s ContainerStarted a]"}, r.drain())
			})
		})
	}
}

func TestHintsAboutAHeldPodAreNotLost(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: Options{Metrics: metrics}}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		before := r.inspections("p")
		r.g.news.hold("p")
		r.g.news.hold("p")
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(time.Second)
		(&Evented{r.g}).Release("p")
		r.pass(time.Second)
		assert.Empty(t, r.drain(), "held once more")
		assert.Equal(t, before, r.inspections("p"))

		r.g.Relist() // sees it, and does not call it missed
		r.pass(2 * time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		assert.Empty(t, metrics.missed)

		r.set("p", sbx("s", runtime.SandboxNotReady), ctr("a", "exited"))
		r.pass(time.Second)
		assert.Empty(t, r.drain())
		(&Evented{r.g}).Release("p")
		assert.Equal(t, []string{"p[SandboxDied s]"}, r.drain(), "at once")
		assert.Empty(t, r.g.news.holds)
		assert.Empty(t, r.g.news.late)
	})
}

func TestReleaseKeepsEachHint(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.g.news.hold("p")
		r.do(func() { r.events.deaf = true })
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.hint(runtime.Hint{Pod: refOf("p"), ID: "a", Event: runtime.HintStopped})
		r.hint(runtime.Hint{Pod: refOf("p"), ID: "a", Event: runtime.HintStarted}) // overtaken
		r.pass(time.Second)
		(&Evented{r.g}).Release("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
	})
}

func TestHeldNewPodIsNotMissed(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: Options{Metrics: metrics}}, func(r *rig) {
		r.settled()
		r.g.news.hold("new")
		r.set("new", sbx("s", "ready")) // and now an image is pulled
		r.pass(10 * time.Millisecond)
		r.g.Relist()
		r.pass(5 * time.Second)
		assert.Empty(t, metrics.missed)
		assert.Equal(t, 300*time.Second, r.g.pace.period)
		attempts := len(r.events.attempts)
		for i := range 8 {
			uid := types.UID(fmt.Sprint("n", i))
			r.g.news.hold(uid)
			r.set(uid, sbx("s"+string(uid), "ready"))
			r.pass(3 * time.Second)
		}
		assert.Equal(t, attempts, len(r.events.attempts), "stream was given up")
		assert.Empty(t, metrics.missed)
	})
}

func TestWhatWasHeldExcusesNothingLater(t *testing.T) {
	metrics := &gauge{}
	inEvented(t, EventedOptions{Options: Options{Metrics: metrics}}, func(r *rig) {
		r.set("p", sbx("s", "ready"), ctr("a", "running"))
		r.settled()
		r.g.news.hold("p")
		r.set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.pass(10 * time.Millisecond)
		_, err := r.cache.Newer(r.Context(), refOf("p"), r.cache.Now())
		require.NoError(t, err)
		(&Evented{r.g}).Release("p")
		r.pass(time.Second)
		assert.Equal(t, []string{"p[ContainerDied a]"}, r.drain())
		r.do(func() { r.events.deaf = true })
		r.set("p", sbx("s", "ready"), ctr("a", "exited"), ctr("b", "running"))
		r.g.Relist()
		r.pass(3 * time.Second)
		assert.Equal(t, []string{"p[ContainerStarted b]"}, r.drain())
		assert.Equal(t, []int{1}, metrics.missed)
	})
}

func TestSandboxThatWasNotReadyYet(t *testing.T) {
	inEvented(t, EventedOptions{}, func(r *rig) {
		r.set("p", sbx("s", runtime.SandboxNotReady))
		r.settled()
		r.set("p", sbx("s", "ready"))
		r.pass(time.Second)
		assert.Equal(t, "s=ready", r.cached("p"))
	})
}

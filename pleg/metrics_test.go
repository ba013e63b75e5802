package pleg_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMetrics(t *testing.T) {
	inGeneric(t, pleg.Options{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.ListTakes = 100 * time.Millisecond })
		r.Set("p", sbx("s", "ready"), sbx("r", "ready"), ctr("a", "running"), ctr("b", "exited"))
		r.Set("q", sbx("t", "not-ready"), ctr("c", "running"))
		began := time.Now()
		r.run()
		r.pass(1100 * time.Millisecond)
		r.Do(func(s *plegtest.State) { s.ListErr = plegtest.ErrInjected })
		r.pass(1500 * time.Millisecond)
		require.Len(t, r.metrics.now().relists, 3)
		after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
		assert.Equal(t, []pleg.Relisted{
			{Took: 100 * time.Millisecond, Began: began, Due: after(1100)},
			{Took: 100 * time.Millisecond, Began: after(1100), Interval: 1100 * time.Millisecond, Due: after(2200)},
			{Err: plegtest.ErrInjected, Began: after(2200), Interval: 1100 * time.Millisecond, Due: after(3200)},
		}, r.metrics.now().relists)
		assert.Equal(t, []pleg.Counts{{Pods: 1, Running: 2, Exited: 1}}, r.metrics.now().counts, "nothing has changed")
	})
}

// TestCountsFollowEvents: counts are reported when they change, however long it is until
// the next relist.
func TestCountsFollowEvents(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Set("p", sbx("s", "ready"), ctr("a", "running"))
		r.run()
		r.pass(10 * time.Second)
		relists := len(r.metrics.now().relists)
		assert.Equal(t, pleg.Counts{Pods: 1, Running: 1}, last(r.metrics.now().counts))
		r.Set("p", sbx("s", "ready"), ctr("a", "exited"))
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p")})
		r.pass(time.Second)
		assert.Equal(t, pleg.Counts{Pods: 1, Exited: 1}, last(r.metrics.now().counts))
		r.Set("p", sbx("s", "not-ready"))
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p")})
		r.pass(time.Second)
		assert.Equal(t, pleg.Counts{}, last(r.metrics.now().counts))
		assert.Len(t, r.metrics.now().relists, relists)
		assert.Greater(t, time.Until(last(r.metrics.now().relists).Due), 4*time.Minute)
	})
}

func TestMetricsOfTheStream(t *testing.T) {
	inEvented(t, pleg.EventedOptions{}, func(r *rig) {
		r.Do(func(s *plegtest.State) { s.Stream.Unannounced = true })
		r.run()
		assert.Empty(t, r.metrics.now().connected)
		r.Hint(runtime.Hint{Pod: plegtest.Ref("p"), Age: time.Second}, runtime.Hint{ID: "x"})
		synctest.Wait()
		assert.Equal(t, []error{nil}, r.metrics.now().connected)
		assert.Equal(t, []time.Duration{time.Second, 0}, r.metrics.now().ages)
	})
}

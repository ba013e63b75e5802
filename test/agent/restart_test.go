package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// The restart of the agent does not restart a crash loop.
func TestACrashLoopWaitsAcrossRestartsOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Exits(time.Second, 1))
		n := startNode(t, dir, rt)
		n.source.Set(makePod("web"))
		n.after(90 * time.Second) // exits after about 1, 2, 13, 34 and 75 s
		n.stop(t)
		before := started(rt)
		require.Equal(t, 5, before)
		for range 5 { // the delay is 80 s now
			n = startNode(t, dir, rt)
			n.source.Set(makePod("web"))
			web := n.after(10 * time.Second)["web"]
			require.NotNil(t, web.Status.ContainerStatuses[0].State.Waiting)
			assert.Equal(t, "CrashLoopBackOff", web.Status.ContainerStatuses[0].State.Waiting.Reason)
			assert.Contains(t, web.Status.ContainerStatuses[0].State.Waiting.Message, "back-off 1m20s")
			n.stop(t)
		}
		assert.Equal(t, before, started(rt))
		n = startNode(t, dir, rt)
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(20 * time.Second)
		assert.Equal(t, before+1, started(rt), "it is started at the end of the back-off")
	})
}

// started returns the number of containers that were started.
func started(rt *fake.Runtime) (n int) {
	for _, c := range rt.Calls(fake.Target{}) {
		if c.Method == "StartContainer" {
			n++
		}
	}
	return n
}

// A pod that is being stopped gets its grace period once, however often the agent is
// restarted meanwhile.
func TestTheGracePeriodAcrossRestartsOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Script(fake.Target{}, fake.Behavior{IgnoresStop: true})
		n := startNode(t, dir, rt)
		n.source.Set(testpod.With(makePod("web"), testpod.Grace(60)))
		n.after(5 * time.Second)
		n.source.Set()
		for range 4 {
			n.after(12 * time.Second)
			n.stop(t)
			n = startNode(t, dir, rt)
			n.source.Set()
		}
		defer func() { n.stop(t) }()
		require.Len(t, rt.Running(fake.Target{}), 1)
		n.after(16 * time.Second)
		assert.Empty(t, rt.Running(fake.Target{}))
	})
}

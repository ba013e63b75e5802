package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// Fifty pods need one image, whose pull takes a minute: it is pulled once, and all start within 100 ms of its end.
func TestAllStartAfterTheirPull(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		rt.Inject(fake.Fault{Call: "PullImage", Delay: time.Minute})
		n := startNode(t, dir, rt)
		defer n.stop(t)
		n.source.Set(fake.Pods(50, 1)...)
		n.after(2 * time.Minute)

		instances := rt.Running(fake.Target{})
		require.Len(t, instances, 50)
		var pulls []fake.Call
		for _, call := range rt.Calls(fake.Target{}) {
			if call.Method == "PullImage" {
				pulls = append(pulls, call)
			}
		}
		require.Len(t, pulls, 1)
		pulled := pulls[0].Ended
		for _, instance := range instances {
			assert.WithinRange(t, instance.StartedAt, pulled, pulled.Add(100*time.Millisecond), instance)
		}
	})
}

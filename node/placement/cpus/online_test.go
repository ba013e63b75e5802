package cpus_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/cpuset"

	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// CPUs that go offline leave the shared pool, and are not assigned, until the next agent starts. A set is never empty.
func TestCPUsThatGoOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		online, failure := set(t, "0-15"), error(nil)
		now := func(list string, err error) {
			mu.Lock()
			defer mu.Unlock()
			failure = err
			if err == nil {
				online = set(t, list)
			}
		}
		node := nodefake.NewNode()
		opts := cpus.Options{
			Online: func() (cpuset.CPUSet, error) {
				mu.Lock()
				defer mu.Unlock()
				return online, failure
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		rt := &setter{}
		path := filepath.Join(t.TempDir(), "state")
		m := newManager(t, "xeon-2n", path, rt, opts)
		require.NoError(t, m.Join(node))
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		own, first, second := guaranteed("own", 2), burstable("first"), burstable("second")
		allocate(t, m, own)
		assert.Equal(t, "0,3-15", edit(t, m, first).CPUSet)
		require.NoError(t, m.Running(ctx, first, status(first, "1", runtime.ContainerRunning)))

		now("0,2-3,6-15", nil) // one is exclusive
		assert.Equal(t, "0,3,6-15", edit(t, m, second).CPUSet, "it would not start with the others")
		synctest.Wait()
		assert.Equal(t, "0,3,6-15", rt.of("1"), "those that run, too")
		measured := node.Measurements()
		assert.Equal(t, cpus.Counts{Shared: 11, Exclusive: map[int]int{0: 2, 1: 0}}, measured[len(measured)-1])
		assert.Equal(t, "1-2", edit(t, m, own).CPUSet, "it has them")
		next := guaranteed("next", 2)
		allocate(t, m, next)
		assert.Equal(t, "3,6", m.Exclusive("next", "main").String())

		now("", errors.New("no such file"))
		assert.Equal(t, "0,7-15", edit(t, m, second).CPUSet)
		now("0-15", nil)
		end(t, m, next)
		end(t, m, own)
		synctest.Wait()
		assert.Equal(t, "0,2-3,6-15", rt.of("1"), "they are back with the next agent")

		now("1", nil)
		_, err := m.EditContainer(ctx, second, &second.Spec.Containers[0])
		require.ErrorContains(t, err, "no CPU is left")
		synctest.Wait()
		assert.Equal(t, "0,2-3,6-15", rt.of("1"), "a set is never empty")
		cancel()
		require.NoError(t, <-done)

		now("0-15", nil)
		m = newManager(t, "xeon-2n", path, rt, opts)
		assert.Equal(t, "0-15", edit(t, m, second).CPUSet)
	})
}

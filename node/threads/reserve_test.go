package threads

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lines returns a logger, and a function that returns what it was given.
func lines() (logr.Logger, func() []string) {
	var mu sync.Mutex
	var all []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, args)
	}, funcr.Options{})
	return log, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestSize(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits []limit
		want   int
	}{
		{"no limit", nil, 0},
		{"much room", []limit{{max: 1000, used: 10}}, 20},
		{"the smallest room", []limit{{max: 1000, used: 10}, {max: 30, used: 15}}, 12},
		{"hardly any room", []limit{{max: 30, used: 27}}, 0},
		{"no room", []limit{{max: 30, used: 30}}, 0},
		{"a limit that was lowered", []limit{{max: 30, used: 300}}, 0},
	} {
		assert.Equal(t, tc.want, size(tc.limits, 20), tc.name)
	}
}

func TestOptions(t *testing.T) {
	_, err := New(Options{Threads: -1})
	assert.EqualError(t, err, "threads: Options.Threads is -1, and must not be below 0")
	r, err := New(Options{})
	require.NoError(t, err)
	assert.Greater(t, r.opts.Threads, DefaultThreads)
}

func TestRunIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir() // without any file
		r, err := New(Options{proc: dir, cgroup: dir, make: func(int) { t.Error("there is no limit") }})
		require.NoError(t, err)
		r.limits = nil
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		r.fill.Do(func() {}) // a user other than root may have a limit
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		assert.ErrorIs(t, r.Run(ctx), ErrAlreadyRunning)
		cancel()
		assert.NoError(t, <-ended)
	})
}

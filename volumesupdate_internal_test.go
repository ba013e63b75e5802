package kubeletkit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

// refreshes are the calls for volumes that are refreshed.
type refreshes struct {
	mu    sync.Mutex
	calls map[types.UID]int
	now   int
	most  int
}

func (r *refreshes) RefreshVolumes(ctx context.Context, uid types.UID, _ func(types.UID) (*v1.Pod, bool)) {
	r.mu.Lock()
	r.calls[uid]++
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	if uid == "hangs" {
		<-ctx.Done()
	} else {
		time.Sleep(time.Second)
	}
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
}

// A pod whose volumes do not answer holds up no other pod. Of one pod there is one update at a
// time, and another one after it if it was requested meanwhile.
func TestVolumeUpdatesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refreshes{calls: map[types.UID]int{}}
		u := newVolumeUpdates(r, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- u.run(ctx) }()
		note := func(uid string) {
			u.note(testpod.New("p", testpod.UID(types.UID(uid)), testpod.Volumes(v1.Volume{Name: "v"})))
		}
		u.note(nil)
		u.note(testpod.New("none", testpod.UID("none")))
		note("hangs")
		for i := range 40 {
			note(fmt.Sprint(i))
		}
		time.Sleep(time.Millisecond)
		note("0")
		note("0")
		note("hangs")
		time.Sleep(10 * time.Second)
		r.mu.Lock()
		assert.Equal(t, parallelUpdates, r.most)
		assert.Len(t, r.calls, 41)
		assert.LessOrEqual(t, r.calls["0"], 2)
		assert.Equal(t, 1, r.calls["hangs"])
		assert.Equal(t, 1, r.calls["1"])
		r.mu.Unlock()
		cancel()
		require.NoError(t, <-done)
	})
}

package podsync

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

// A pod whose volumes do not answer holds up no other pod. Of one pod there is one refresh at a
// time, and another one after it if it was requested meanwhile.
func TestRefreshesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls, now, most := map[types.UID]int{}, 0, 0
		refresh := func(ctx context.Context, uid types.UID) {
			mu.Lock()
			calls[uid]++
			now++
			most = max(most, now)
			mu.Unlock()
			if uid == "hangs" {
				<-ctx.Done()
			} else {
				time.Sleep(time.Second)
			}
			mu.Lock()
			now--
			mu.Unlock()
		}
		r := newRefreshes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run(ctx, refresh)
		}()
		r.add("hangs")
		for i := range 40 {
			r.add(types.UID(fmt.Sprint(i)))
		}
		time.Sleep(time.Millisecond)
		r.add("0")
		r.add("0")
		r.add("hangs")
		time.Sleep(10 * time.Second)
		mu.Lock()
		assert.Equal(t, parallelRefreshes, most)
		assert.Len(t, calls, 41)
		assert.LessOrEqual(t, calls["0"], 2)
		assert.Equal(t, 1, calls["hangs"])
		assert.Equal(t, 1, calls["1"])
		mu.Unlock()
		cancel()
		<-done
	})
}

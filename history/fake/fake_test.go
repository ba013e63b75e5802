package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h fake.History
		web, db := runtime.PodRef{UID: "1", Name: "web"}, runtime.PodRef{UID: "2", Name: "db"}
		start := runtime.Record{Pod: web, Stage: runtime.StageDone, Kind: runtime.KindStartContainer,
			Duration: time.Second}
		h.Record(start)
		ctx, cancel := context.WithCancel(t.Context())
		got := 0
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range h.Watch(ctx, "1") {
				assert.Equal(t, web, e.Pod)
				got++
			}
		}()
		synctest.Wait()
		assert.Equal(t, 1, got)
		h.Record(start)
		h.Record(runtime.Record{Pod: db, Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
		synctest.Wait()
		assert.Equal(t, 2, got, "repeats are not merged")
		cancel()
		<-ended
		start.Pod, start.Duration = runtime.PodRef{}, 0
		assert.Equal(t, []runtime.Record{start, start}, h.Records("web", runtime.KindStartContainer))
		assert.Empty(t, h.Records("web", runtime.KindStopPod))
		pods := h.Pods()
		assert.Equal(t, web, pods[1].PodRef)
		assert.False(t, pods[0].GoneAt.IsZero())
	})
}

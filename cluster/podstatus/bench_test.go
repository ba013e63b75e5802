package podstatus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/cluster/podstatus"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
)

// BenchmarkDeliver is the cost of one changed status of 500 pods, with the JSON of the API server
// in memory on both sides.
func BenchmarkDeliver(b *testing.B) {
	for _, n := range []int{10, 500} {
		b.Run(fmt.Sprint(n, " pods"), func(b *testing.B) {
			api := apitest.New()
			var pods []*v1.Pod
			for i := range n {
				pods = append(pods, api.Create(apiPod(fmt.Sprint("pod-", i))))
			}
			var sink *podstatus.Sink
			src, err := podsource.New(api.Client(), node, podsource.Options{Observers: []func(podsource.Change){
				func(c podsource.Change) { sink.PodsChanged(c) },
			}})
			require.NoError(b, err)
			sink, err = podstatus.New(api.Client(), src,
				podstatus.Options{NodeName: node, Ended: func(types.UID) bool { return false }, QPS: 1e9, Burst: 1e9})
			require.NoError(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = src.Run(ctx, podconfig.SinkBase{}) })
			wg.Go(func() { sink.WatchReceiver(ctx, func(types.UID) {}) })
			defer wg.Wait()
			defer cancel()
			for !src.Synced() {
				time.Sleep(time.Millisecond)
			}
			for _, pod := range pods {
				_, err := sink.Deliver(ctx, pod, running(false))
				require.NoError(b, err)
			}
			ready := false
			b.ReportAllocs()
			for b.Loop() {
				ready = !ready
				_, err := sink.Deliver(ctx, pods[7], running(ready))
				require.NoError(b, err)
				api.Requests()
			}
		})
	}
}

package cluster

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// Each kind of traffic has a budget of its own: statuses and events that wait by the hundred
// delay neither the lease nor the objects of pods nor each other (kubernetes#39113, #50304).
func TestABurstOfOneKindDelaysNoOther(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		r.change = func(c *Config, _ *kubeletkit.Options) {
			c.Budgets = Budgets{Status: Budget{QPS: 1, Burst: 1}, Events: Budget{QPS: 1, Burst: 1}}
		}
		var mu sync.Mutex
		at := map[string][]time.Time{}
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			if writes(req) {
				mu.Lock()
				defer mu.Unlock()
				at[req.Resource] = append(at[req.Resource], time.Now())
			}
			return nil, nil
		})
		r.start()
		r.api.Put("configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "conf"},
			Data: map[string]string{"k": "v"}})
		r.after(time.Minute)
		const pods = 100
		for i := range pods {
			pod := bound(fmt.Sprintf("web-%d", i))
			pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}}
			r.api.Create(pod)
		}
		begin := time.Now()
		r.after(10 * time.Second)
		require.Len(t, r.rt.Running(fake.Target{}), pods, "nothing that a pod needs waits for statuses and events")
		r.after(50 * time.Second)

		mu.Lock()
		defer mu.Unlock()
		since := func(kind string) (n int) {
			for _, t := range at[kind] {
				if t.After(begin) {
					n++
				}
			}
			return n
		}
		assert.InDelta(t, 60, since("pods"), 3, "statuses: one a second")
		assert.InDelta(t, 60, since("events"), 3, "events: one a second")
		leases := at["leases"]
		require.Greater(t, len(leases), 10)
		for i := range leases[1:] {
			assert.Less(t, leases[i+1].Sub(leases[i]), 11*time.Second, "the lease")
		}
	})
}

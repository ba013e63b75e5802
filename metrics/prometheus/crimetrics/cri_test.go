package crimetrics_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/crimetrics"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestMetricsOfAStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		m, err := crimetrics.New(reg)
		require.NoError(t, err)
		rt := fake.New(fake.Options{CRI: cri.Options{Observer: runtime.Observer{Measure: m.Measure}}, Dir: dir})
		defer rt.Close()
		pod := testpod.New("web", testpod.Containers("main"))
		status, err := rt.InspectPod(t.Context(), runtime.RefOf(pod))
		require.NoError(t, err)
		_, err = rt.SyncPod(t.Context(), runtime.PodSync{Pod: pod, Status: status, Dir: dir, Host: rt.Host()})
		require.NoError(t, err)
		synctest.Wait() // the metrics have received all

		value := func(name string, labels ...string) float64 {
			t.Helper()
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() != name {
					continue
				}
				for _, metric := range f.GetMetric() {
					var got []string
					for _, l := range metric.GetLabel() {
						got = append(got, l.GetValue())
					}
					if assert.ObjectsAreEqual(labels, got) {
						return metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
					}
				}
			}
			return 0
		}
		assert.Zero(t, value("kubelet_started_user_namespaced_pods_total"))
		m.Measure(cri.PodStart{UserNamespace: true})
		m.Measure(cri.PodStart{UserNamespace: true, Err: errors.New("no container")})
		assert.Equal(t, 2.0, value("kubelet_started_user_namespaced_pods_total"))
		assert.Equal(t, 1.0, value("kubelet_started_user_namespaced_pods_errors_total"))
		assert.Equal(t, 1.0, value("kubelet_runtime_operations_total", "run_podsandbox"))
		assert.Equal(t, 1.0, value("kubelet_runtime_operations_duration_seconds", "start_container"))
		assert.Zero(t, value("kubelet_runtime_operations_errors_total", "start_container"))
		assert.Equal(t, 1.0, value("kubelet_started_pods_total"))
		assert.Equal(t, 1.0, value("kubelet_started_containers_total", "container"))
		assert.Equal(t, 1.0, value("kubelet_run_podsandbox_duration_seconds", ""))
	})
}

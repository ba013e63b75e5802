package e2e

import (
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// labelsOf returns the labels of a series.
func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// TestProbeMetrics has /metrics/probes count what the probes of a pod have resulted in, and forget the
// pod when it is gone.
func TestProbeMetrics(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	agent := c.StartAgent(t, AgentOptions{})
	probe := func(file string) *v1.Probe {
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", file}}},
			PeriodSeconds: 1, FailureThreshold: 1000, TimeoutSeconds: 30}
	}
	probed := Sh("c", "touch /live; "+Forever)
	probed.StartupProbe, probed.LivenessProbe, probed.ReadinessProbe = probe("/started"),
		probe("/live"), probe("/ready")
	pod := MakePod("probed", Main(probed, Sh("other", Forever)))
	name := FullName(pod)
	agent.Put(t, pod)
	uid := string(agent.Await(t, pod, within, Running).UID)

	// counted returns the number of attempts by kind and result. Other labels must be those of the
	// container.
	counted := func() map[string]float64 {
		out := map[string]float64{}
		for _, m := range metricsPage(t, agent, "/metrics/probes")["prober_probe_total"].GetMetric() {
			labels := labelsOf(m)
			require.Equal(t, map[string]string{
				"probe_type": labels["probe_type"], "result": labels["result"], "container": "c", "pod": name, "namespace": "default", "pod_uid": uid,
			}, labels)
			out[labels["probe_type"]+" "+labels["result"]] = m.GetCounter().GetValue()
		}
		return out
	}
	// await waits until there are results of these kinds and no others.
	await := func(what string, want ...string) (got map[string]float64) {
		t.Helper()
		Eventually(t, eventually, what, func() error {
			got = counted()
			for _, key := range want {
				if got[key] == 0 {
					return fmt.Errorf("no result %q: %v", key, got)
				}
			}
			return nil
		})
		assert.Len(t, got, len(want), "%v", got)
		return got
	}
	await("no probe but that of the startup", "Startup failed")
	c.Exec(t, name, "c", "touch", "/started")
	started := await("the container has started", "Startup failed", "Startup successful", "Liveness successful",
		"Readiness failed")
	assert.Equal(t, 1.0, started["Startup successful"], "it is not probed after it has started")
	c.Exec(t, name, "c", "touch", "/ready")
	await("the container is ready", "Startup failed", "Startup successful", "Liveness successful", "Readiness failed",
		"Readiness successful")
	agent.Await(t, pod, within, Ready(true))
	c.Exec(t, name, "c", "rm", "/live")
	ended := await("all results", "Startup failed", "Startup successful", "Liveness successful", "Liveness failed",
		"Readiness failed", "Readiness successful")
	assert.Equal(t, started["Startup failed"], ended["Startup failed"])

	// The page is read in one go, but an attempt is counted before its duration.
	Eventually(t, eventually, "durations of all attempts", func() error {
		page := metricsPage(t, agent, "/metrics/probes")
		attempts, durations := map[string]float64{}, map[string]float64{}
		for _, m := range page["prober_probe_total"].GetMetric() {
			attempts[labelsOf(m)["probe_type"]] += m.GetCounter().GetValue()
		}
		for _, m := range page["prober_probe_duration_seconds"].GetMetric() {
			labels := labelsOf(m)
			require.Equal(t, map[string]string{"probe_type": labels["probe_type"], "container": "c", "pod": name,
				"namespace": "default"}, labels)
			require.Positive(t, m.GetHistogram().GetSampleSum())
			durations[labels["probe_type"]] = float64(m.GetHistogram().GetSampleCount())
		}
		if len(attempts) != 3 || !assert.ObjectsAreEqual(attempts, durations) {
			return fmt.Errorf("attempts %v, durations %v", attempts, durations)
		}
		return nil
	})

	agent.Remove(t, pod)
	agent.AwaitGone(t, within, pod)
	Eventually(t, within, "the pod is not on the page", func() error {
		if left := counted(); len(left) > 0 {
			return fmt.Errorf("it is: %v", left)
		}
		return nil
	})
}

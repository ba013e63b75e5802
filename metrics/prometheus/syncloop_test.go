package prommetrics_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// What the sync loop measures has kubelet's labels. Reasons of refusals have a bound.
func TestMetricsOfTheSyncLoop(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewSyncLoop(reg)
	require.NoError(t, err)
	for _, v := range []runtime.Measurement{
		syncloop.Counts{Desired: [2]int{3, 1}, Active: [2]int{2, 1}},
		syncloop.Refused{Reason: "OutOfcpu"}, syncloop.Refused{Reason: "OutOfexample.com/gpu"},
		syncloop.Refused{Reason: "NodeAffinity"}, syncloop.Preempted{Resource: v1.ResourceMemory},
		syncloop.ResizeRequested{Resource: v1.ResourceCPU, Requirement: "limits", Operation: "add"},
		syncloop.ResizesPending{{Reason: v1.PodReasonInfeasible, Priority: "high"}: 1},
		syncloop.ResizesPending{{Reason: v1.PodReasonDeferred, Priority: "normal"}: 2},
		syncloop.ResizeInfeasible{Detail: "swap_limitation"},
		syncloop.DeferredResizeEnded{Priority: "low", Resolution: syncloop.ResizeReverted, Took: time.Second},
		syncloop.DeferredResizeEnded{Priority: "low", Resolution: syncloop.ResizeAccepted, Took: time.Second},
		podsync.ResizeInProgress{Began: true}, podsync.ResizeInProgress{Began: true}, podsync.ResizeInProgress{},
	} {
		m.Measure(v)
	}
	text := scrape(t, reg)
	for _, line := range []string{
		`kubelet_desired_pods{static=""} 3`, `kubelet_desired_pods{static="true"} 1`, `kubelet_active_pods{static=""} 2`,
		`kubelet_admission_rejections_total{reason="OutOfcpu"} 1`,
		`kubelet_admission_rejections_total{reason="OutOfExtendedResources"} 1`,
		`kubelet_admission_rejections_total{reason="Other"} 1`, `kubelet_preemptions{preemption_signal="memory"} 1`,
		`kubelet_container_requested_resizes_total{operation="add",requirement="limits",resource="cpu"} 1`,
		`kubelet_pod_infeasible_resizes_total{reason_detail="swap_limitation"} 1`,
		`kubelet_pod_deferred_accepted_resizes_total{retry_trigger="periodic_retry"} 1`,
		`kubelet_pod_deferred_resize_duration_seconds_count{priority_bucket="low",resolution="reverted"} 1`,
		`kubelet_pod_in_progress_resizes 1`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	assert.Equal(t, []string{`kubelet_pod_pending_resizes{priority_bucket="normal",reason="deferred"} 2`},
		lines(text, "kubelet_pod_pending_resizes"))
}

// Volumes are counted by plugin until a pod has none.
func TestTotalVolumes(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewVolumes(reg)
	require.NoError(t, err)
	a, b := runtime.PodRef{UID: "a"}, runtime.PodRef{UID: "b"}
	m.Measure(volume.PodVolumes{Pod: a, Desired: map[string]int{"e": 2, "s": 1}, Actual: map[string]int{"e": 2}})
	m.Measure(volume.PodVolumes{Pod: b, Desired: map[string]int{"e": 1}, Actual: map[string]int{"e": 1}})
	assert.ElementsMatch(t, []string{
		`volume_manager_total_volumes{plugin_name="e",state="desired_state_of_world"} 3`,
		`volume_manager_total_volumes{plugin_name="s",state="desired_state_of_world"} 1`,
		`volume_manager_total_volumes{plugin_name="e",state="actual_state_of_world"} 3`,
	}, lines(scrape(t, reg), "volume_manager"))
	m.Measure(volume.PodVolumes{Pod: a, Actual: map[string]int{"e": 1}})
	m.Measure(volume.PodVolumes{Pod: b})
	assert.Equal(t, []string{`volume_manager_total_volumes{plugin_name="e",state="actual_state_of_world"} 1`},
		lines(scrape(t, reg), "volume_manager"))
}

// The SLI of a start leaves out pulls, also those at the same time, and init containers.
func TestPodStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		m, err := prommetrics.NewPodStarts(reg)
		require.NoError(t, err)
		created := time.Now()
		web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "web", CreationTimestamp: metav1.NewTime(created)}}
		ref := runtime.RefOf(web)
		time.Sleep(10 * time.Second)
		m.Measure(images.Pull{Pod: ref, Took: 5 * time.Second})
		m.Measure(images.Pull{Pod: ref, Took: 3 * time.Second})
		time.Sleep(10 * time.Second)
		m.Measure(images.Pull{Pod: ref, Took: 2 * time.Second})
		at := func(s int) metav1.Time { return metav1.NewTime(created.Add(time.Duration(s) * time.Second)) }
		m.Measure(status.StartDelivered{Pod: web, At: time.Now(), Status: &v1.PodStatus{
			InitContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{
				Terminated: &v1.ContainerStateTerminated{StartedAt: at(12), FinishedAt: at(16)}}}},
		}})
		stateful := web.DeepCopy()
		stateful.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
		m.Measure(status.StartDelivered{Pod: stateful, At: time.Now(), Status: &v1.PodStatus{}})
		m.Measure(podworkers.Call{Pod: ref, Phase: podworkers.PhaseTerminated})
		text := scrape(t, reg)
		for _, line := range []string{
			"kubelet_pod_start_total_duration_seconds_sum 40", "kubelet_pod_start_total_duration_seconds_count 2",
			"kubelet_pod_start_sli_duration_seconds_sum 9", "kubelet_pod_start_sli_duration_seconds_count 1",
			"kubelet_first_network_pod_start_sli_duration_seconds 9",
		} {
			assert.Contains(t, text, "\n"+line+"\n")
		}
	})
}

// The durations of the start of a node begin with the machine. A second registration changes nothing.
func TestNodeStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		m, err := prommetrics.NewNodeStartup(reg, time.Now().Add(-time.Minute))
		require.NoError(t, err)
		m.Ready() // of another one
		for range 2 {
			time.Sleep(time.Second)
			m.Registering()
			time.Sleep(2 * time.Second)
			m.Registered()
			time.Sleep(4 * time.Second)
			m.Ready()
		}
		assert.Equal(t, []string{
			"kubelet_node_startup_duration_seconds 67", "kubelet_node_startup_post_registration_duration_seconds 4",
			"kubelet_node_startup_pre_kubelet_duration_seconds 60",
			"kubelet_node_startup_pre_registration_duration_seconds 1",
			"kubelet_node_startup_registration_duration_seconds 2",
		}, lines(scrape(t, reg), "kubelet_node_startup"))
	})
}

package prommetrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// lines returns the lines of a scrape that begin with the prefix.
func lines(text, prefix string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func TestMetricsOfAnAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		metrics, err := prommetrics.ForAgent(reg, reg)
		require.NoError(t, err)
		rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("demo")
		defer rt.Close()
		placement, err := topology.New(topology.Options{})
		require.NoError(t, err)
		agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "node", RootDir: dir, Runtime: rt, Host: rt.Host(),
			Sources: []podconfig.Source{source}, Observe: kubeletkit.Observe{Measure: metrics},
			Join: []lifecycle.Component{placement}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		source.Set(&v1.Pod{ // with a volume, and a probe
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"},
			Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "tmp",
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
				Containers: []v1.Container{{Name: "main", Image: "image:1",
					VolumeMounts: []v1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
					ReadinessProbe: &v1.Probe{
						ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}}}},
		})
		require.NoError(t, agent.Run(ctx))
		text := scrape(t, reg)
		assert.Equal(t, []string{`kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1`},
			lines(text, "kubelet_working_pods"))
		assert.Equal(t, []string{`kubelet_pod_worker_start_duration_seconds_count 1`},
			lines(text, "kubelet_pod_worker_start_duration_seconds_count"))
		assert.NotEmpty(t, lines(text, `kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`))
		assert.Equal(t, []string{"kubeletkit_podconfig_sources 1"}, lines(text, "kubeletkit_podconfig_sources"))
		assert.Equal(t, []string{`kubeletkit_podconfig_changed_pods_total{operation="add",source="demo"} 1`},
			lines(text, "kubeletkit_podconfig_changed_pods_total"))
		assert.NotEmpty(t,
			lines(text,
				`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/empty-dir"}`))
		assert.Equal(t, []string{"kubelet_running_pods 1"}, lines(text, "kubelet_running_pods"))
		assert.Equal(t, []string{"kubelet_topology_manager_admission_requests_total 1"},
			lines(text, "kubelet_topology_manager_admission_requests_total"), "a component measures, too")
		assert.Len(t,
			lines(text,
				`prober_probe_total{container="main",namespace="default",pod="web",pod_uid="u",probe_type="Readiness",result="successful"}`), 1)

		_, err = prommetrics.ForAgent(reg, reg)
		assert.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
	})
}

func TestSELinuxConflicts(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewVolumes(reg)
	require.NoError(t, err)
	m.Measure(volume.SELinuxConflict{AccessMode: "RWX", Refused: true})
	m.Measure(volume.SELinuxConflict{AccessMode: "RWO"})
	m.Measure(volume.SELinuxConflict{Plugin: "kubernetes.io/csi/d", AccessMode: "RWX", Refused: true})
	m.Measure(volume.SELinuxConflict{Plugin: "kubernetes.io/csi/d", AccessMode: "RWO"})
	m.Measure(volume.SELinuxAdmitted{Plugin: "kubernetes.io/csi/d", AccessMode: "RWOP"})
	assert.Equal(t, []string{`volume_manager_selinux_pod_context_mismatch_errors_total{access_mode="RWX"} 1`,
		`volume_manager_selinux_pod_context_mismatch_warnings_total{access_mode="RWO"} 1`,
		`volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d"} 1`,
		`volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d"} 1`,
		`volume_manager_selinux_volumes_admitted_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d"} 1`},
		lines(scrape(t, reg), "volume_manager_selinux"))
}

func TestWorkingPods(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewPodWorkers(reg)
	require.NoError(t, err)
	m.Measure(podworkers.Counts{
		{Phase: podworkers.PhaseSync, HasConfig: true}:                                     2,
		{Phase: podworkers.PhaseTerminating, Orphan: true}:                                 1,
		{Phase: podworkers.PhaseTerminating, Orphan: true, HasConfig: true, Static: true}:  1,
		{Phase: podworkers.PhaseTerminating, Orphan: true, HasConfig: false, Static: true}: 3,
	})
	assert.Equal(t, []string{
		`kubelet_working_pods{config="desired",lifecycle="sync",static="false"} 2`,
		`kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1`,
		`kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 4`,
	}, lines(scrape(t, reg), "kubelet_working_pods"))
	m.Measure(podworkers.Counts{{Phase: podworkers.PhaseSync, HasConfig: true}: 1})
	assert.Equal(t, []string{`kubelet_working_pods{config="desired",lifecycle="sync",static="false"} 1`},
		lines(scrape(t, reg), "kubelet_working_pods"))
}

func TestFailedCalls(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewPodWorkers(reg)
	require.NoError(t, err)
	now := time.Now()
	m.Measure(podworkers.Call{Phase: podworkers.PhaseSync, Type: podworkers.Sync, Err: errors.New("no"),
		Backoff: time.Second, Began: now, Ended: now})
	m.Measure(podworkers.Call{Phase: podworkers.PhaseSync, Type: podworkers.Change,
		Err: fmt.Errorf("pod: %w", &runtime.PanicError{Value: 1}), Backoff: time.Second, Began: now, Ended: now})
	m.Measure(podworkers.Call{Phase: podworkers.PhaseSync, Type: podworkers.Create,
		Failure: &runtime.TerminalError{Reason: "Denied"}, Began: now, Ended: now})
	assert.Equal(t, []string{
		`kubeletkit_podworkers_failed_calls_total{operation_type="sync"} 1`,
		`kubeletkit_podworkers_failed_calls_total{operation_type="update"} 1`,
		`kubeletkit_podworkers_panics_total 1`,
		`kubeletkit_podworkers_terminal_errors_total 1`,
	}, lines(scrape(t, reg), "kubeletkit_podworkers"))
}

func TestSeriesOfAProbeThatIsGoneAreDeleted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewProber(reg)
	require.NoError(t, err)
	probe := prober.ProbeRef{Pod: runtime.PodRef{Name: "web", Namespace: "default", UID: "u"}, Container: "main",
		Kind: runtime.LivenessProbe}
	for _, outcome := range []prober.Outcome{prober.Success, prober.Warning, prober.Failure, prober.Unknown} {
		m.Measure(prober.Attempt{Probe: probe, Outcome: outcome, Took: time.Second})
	}
	labels := `container="main",namespace="default",pod="web",pod_uid="u",probe_type="Liveness"`
	assert.Equal(t, []string{
		`prober_probe_total{` + labels + `,result="failed"} 1`,
		`prober_probe_total{` + labels + `,result="successful"} 2`,
		`prober_probe_total{` + labels + `,result="unknown"} 1`,
	}, lines(scrape(t, reg), "prober_probe_total"))
	m.Measure(prober.ProbeRemoved{Probe: probe})
	assert.Empty(t, lines(scrape(t, reg), "prober_"))
}

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// What a driver reports of its volumes is in the summary and in the metrics of kubelet, also that of a device.
func TestCSIStats(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	s := newNodeSuite(t, AgentOptions{Config: map[string]any{"volumeStatsAggPeriod": "1s"}})
	s.start(t)
	const name, size = "measured.example.com", 1 << 30
	d := startCSI(t, s, name, "{attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, "+
		"Ephemeral]}", "-controller-capabilities=", "-volume=files=1073741824", "-volume=disk=1048576")
	ns := s.plane.Namespace(t, "csi")
	s.plane.Apply(t, csiVolume(ns, "files", name, "files", "ReadWriteOnce", "volumeMode: Filesystem"))
	s.plane.Apply(t, csiVolume(ns, "disk", name, "disk", "ReadWriteOnce", "volumeMode: Block"))
	inline := withClaim("inline", "")
	inline.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: name}}
	s.create(t, ns, withClaim("files", "files"), withDevice("disk", "disk", false), inline)
	for _, pod := range []string{"files", "disk", "inline"} {
		s.await(t, ns, pod, Running)
	}
	s.Exec(t, "files", "c", "sh", "-c", "dd if=/dev/zero of=/data/big bs=1024 count=1024")

	awaitStats := func(pod, claim string, check func(used, available, capacity uint64) error) {
		t.Helper()
		Eventually(t, eventually, "the usage of the volume of "+pod, func() error {
			summary, err := statsSummary(s.agent, "")
			if err != nil {
				return err
			}
			stats := podStats(summary, pod)
			if stats == nil {
				return fmt.Errorf("no pod %s", pod)
			}
			for _, v := range stats.VolumeStats {
				if v.Name != "data" && v.Name != "disk" {
					continue
				}
				if claim == "" && v.PVCRef != nil || claim != "" && (v.PVCRef == nil || v.PVCRef.Name != claim ||
					v.PVCRef.Namespace != ns) {
					return fmt.Errorf("reference %+v", v.PVCRef)
				}
				if v.UsedBytes == nil || v.AvailableBytes == nil || v.CapacityBytes == nil {
					return fmt.Errorf("%+v", v)
				}
				return check(*v.UsedBytes, *v.AvailableBytes, *v.CapacityBytes)
			}
			return fmt.Errorf("%+v", stats.VolumeStats)
		})
	}
	awaitStats("files", "files", func(used, available, capacity uint64) error {
		if used < 1<<20 || used > 2<<20 || used+available != capacity || capacity != size {
			return fmt.Errorf("used %d, available %d, capacity %d", used, available, capacity)
		}
		return nil
	})
	awaitStats("inline", "", func(used, _, capacity uint64) error {
		if capacity == 0 || used > 1<<20 {
			return fmt.Errorf("used %d, capacity %d", used, capacity)
		}
		return nil
	})
	awaitStats("disk", "disk", func(_, _, capacity uint64) error {
		if capacity != 1<<20 {
			return fmt.Errorf("capacity %d", capacity)
		}
		return nil
	})
	// awaitMetric waits for the value of the metric of the claim.
	awaitMetric := func(metric, claim string, want float64) {
		t.Helper()
		Eventually(t, eventually, metric+" of "+claim, func() error {
			family := metricsPage(t, s.agent, "/metrics")[metric]
			for _, m := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["namespace"] == ns && labels["persistentvolumeclaim"] == claim {
					if got := m.GetGauge().GetValue(); got != want {
						return fmt.Errorf("%v instead of %v", got, want)
					}
					return nil
				}
			}
			return fmt.Errorf("%v", family)
		})
	}
	awaitMetric("kubelet_volume_stats_capacity_bytes", "files", size)
	awaitMetric("kubelet_volume_stats_capacity_bytes", "disk", 1<<20)
	awaitMetric("kubelet_volume_stats_inodes", "files", 1<<20)
	operations := metricsPage(t, s.agent, "/metrics")["csi_operations_seconds"]
	methods := map[string]bool{}
	for _, m := range operations.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "method_name" {
				methods[filepath.Base(l.GetValue())] = true
			}
		}
	}
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeGetVolumeStats"} {
		assert.True(t, methods[method], "%s in %v", method, methods)
	}
	require.NotZero(t, received(t, d, "NodeGetVolumeStats", "files"))

	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "files", "disk", "inline", "--wait=false")
	s.awaitGone(t, ns, "files", "disk", "inline")
	assert.NoError(t, s.csiLeft())
	s.plane.Kubectl(t, "delete", "persistentvolume", ns+"-files", ns+"-disk", "--wait=false")
}

package stats

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Whatever a runtime reports of a pod, what is left of it can be encoded, and is in its bounds.
func FuzzReports(f *testing.F) {
	f.Add("eth0", "container_x", "a", "v", int64(-1), uint64(1<<64-1), 101.5, uint64(3))
	f.Add("eth0\"} 1\nforged{x=\"", "container_x{", "__name__", "\xff", int64(1<<62), uint64(0), -0.1, uint64(1<<60))
	f.Fuzz(func(t *testing.T, name, metric, label, value string, at int64, n uint64, share float64, m uint64) {
		now, when := time.Unix(1e9, 0), metav1.NewTime(time.Unix(0, at))
		data := statsv1alpha1.PSIData{Total: n, Avg10: share, Avg60: share, Avg300: share}
		psi := &statsv1alpha1.PSIStats{Full: data, Some: data}
		cpu := &statsv1alpha1.CPUStats{Time: when, UsageCoreNanoSeconds: &n, UsageNanoCores: &m, PSI: psi}
		memory := &statsv1alpha1.MemoryStats{Time: when, WorkingSetBytes: &n, UsageBytes: &m, RSSBytes: &n,
			PageFaults: &m, PSI: psi}
		io := &statsv1alpha1.IOStats{Time: when, PSI: psi}
		port := statsv1alpha1.InterfaceStats{Name: name, RxBytes: &n, TxErrors: &m}
		s := saneSandbox(&runtime.SandboxUsage{ID: "s", CPU: cpu, Memory: memory, IO: io, Processes: &n,
			Network: &statsv1alpha1.NetworkStats{
				Time: when, InterfaceStats: port, Interfaces: []statsv1alpha1.InterfaceStats{port, port},
			}}, now)
		c := saneContainer(&runtime.ContainerUsage{ID: "c", CPU: cpu, Memory: memory, IO: io,
			Swap:          &statsv1alpha1.SwapStats{Time: when, SwapUsageBytes: &n},
			WritableLayer: &statsv1alpha1.FsStats{Time: when, UsedBytes: &n, InodesUsed: &m}}, now)
		ps := statsv1alpha1.PodStats{Network: s.Network, Containers: []statsv1alpha1.ContainerStats{
			{CPU: c.CPU, Memory: c.Memory, Swap: c.Swap, IO: c.IO, Rootfs: c.WritableLayer}, {CPU: c.CPU, Memory: c.Memory, Swap: c.Swap},
		}}
		addUp(&ps)
		if _, err := json.Marshal([]any{s, c, ps}); err != nil {
			t.Error(err)
		}
		sums := []*uint64{s.Processes, s.CPU.UsageCoreNanoSeconds, c.Memory.WorkingSetBytes, c.Swap.SwapUsageBytes,
			c.WritableLayer.UsedBytes}
		if ps.CPU != nil {
			sums = append(sums, ps.CPU.UsageCoreNanoSeconds)
		}
		if ps.Memory != nil {
			sums = append(sums, ps.Memory.WorkingSetBytes)
		}
		if ps.Swap != nil {
			sums = append(sums, ps.Swap.SwapUsageBytes)
		}
		for _, sum := range sums {
			if sum != nil && *sum > maxAmount {
				t.Errorf("%d is believed", *sum)
			}
		}
		if d := s.CPU.Time.Sub(now); d > maxClockSkew || d < -maxClockSkew {
			t.Errorf("the time is %s", s.CPU.Time)
		}
		if len(s.Network.Interfaces) > 1 {
			t.Error("an interface is there twice")
		}

		family := runtime.MetricFamily{Name: metric, Help: value, Labels: []string{label, "device"},
			Samples: []runtime.MetricSample{
				{LabelValues: []string{value, name}, Value: share, Time: time.Unix(0, at)}, {LabelValues: []string{value}, Value: share},
			}}
		for _, kept := range saneFamilies([]runtime.MetricFamily{family},
			newDeviceNames(machine{proc: "testdata/none"}), now) {
			if !isMetricName(kept.Name) || !isLabelName(kept.Labels[0]) || len(kept.Samples) != 1 ||
				!isSample(&kept, &kept.Samples[0]) {
				t.Errorf("%+v is kept", kept)
			}
		}
	})
}

package stats

import (
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The functions of this file replace what cannot be true in the report of a runtime. What is
// left of a wrong number would be taken for a fact by schedulers and autoscalers.

const (
	// maxAmount is the largest amount that is believed: 1 EiB, or 36 years of CPU time.
	maxAmount = 1 << 60
	// maxClockSkew is how far a time of the runtime may differ from ours. Prometheus refuses
	// samples from the future.
	maxClockSkew = 10 * time.Minute
	// maxInterfaces is the number of network interfaces that are reported for a pod.
	maxInterfaces = 64
	// maxInterfaceName is the length of the name of an interface (IFNAMSIZ).
	maxInterfaceName = 15
)

// isPercent is false of NaN, which JSON does not have.
func isPercent(f float64) bool { return f >= 0 && f <= 100 }

// amount returns nil for an amount that is not believed.
func amount(n *uint64) *uint64 {
	if n != nil && *n > maxAmount {
		return nil
	}
	return n
}

// moment returns a time that is not believed as now.
func moment(t metav1.Time, now time.Time) metav1.Time {
	if d := now.Sub(t.Time); d > maxClockSkew || d < -maxClockSkew {
		return metav1.NewTime(now)
	}
	return t
}

func saneCPU(c *statsv1alpha1.CPUStats, now time.Time) *statsv1alpha1.CPUStats {
	if c == nil {
		return nil
	}
	return &statsv1alpha1.CPUStats{Time: moment(c.Time, now), UsageNanoCores: amount(c.UsageNanoCores),
		UsageCoreNanoSeconds: amount(c.UsageCoreNanoSeconds), PSI: sanePSI(c.PSI)}
}

func saneMemory(m *statsv1alpha1.MemoryStats, now time.Time) *statsv1alpha1.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsv1alpha1.MemoryStats{
		Time: moment(m.Time, now), AvailableBytes: amount(m.AvailableBytes), UsageBytes: amount(m.UsageBytes),
		WorkingSetBytes: amount(m.WorkingSetBytes),
		RSSBytes:        amount(m.RSSBytes), PageFaults: amount(m.PageFaults),
		MajorPageFaults: amount(m.MajorPageFaults),
		PSI:             sanePSI(m.PSI),
	}
}

func saneSwap(s *statsv1alpha1.SwapStats, now time.Time) *statsv1alpha1.SwapStats {
	if s == nil {
		return nil
	}
	return &statsv1alpha1.SwapStats{Time: moment(s.Time, now), SwapAvailableBytes: amount(s.SwapAvailableBytes),
		SwapUsageBytes: amount(s.SwapUsageBytes)}
}

func saneIO(i *statsv1alpha1.IOStats, now time.Time) *statsv1alpha1.IOStats {
	if i == nil {
		return nil
	}
	return &statsv1alpha1.IOStats{Time: moment(i.Time, now), PSI: sanePSI(i.PSI)}
}

func saneLayer(f *statsv1alpha1.FsStats, now time.Time) *statsv1alpha1.FsStats {
	if f == nil {
		return nil
	}
	return &statsv1alpha1.FsStats{Time: moment(f.Time, now), UsedBytes: amount(f.UsedBytes),
		InodesUsed: amount(f.InodesUsed)}
}

// sanePSI returns nil for a share of time above 100 % and for one that is no number.
func sanePSI(p *statsv1alpha1.PSIStats) *statsv1alpha1.PSIStats {
	if p == nil {
		return nil
	}
	for _, d := range []statsv1alpha1.PSIData{p.Full, p.Some} {
		if !isPercent(d.Avg10) || !isPercent(d.Avg60) || !isPercent(d.Avg300) || d.Total > maxAmount {
			return nil
		}
	}
	return p
}

func saneNetwork(n *statsv1alpha1.NetworkStats, now time.Time) *statsv1alpha1.NetworkStats {
	if n == nil {
		return nil
	}
	out := &statsv1alpha1.NetworkStats{Time: moment(n.Time, now)}
	if isInterface(n.Name) {
		out.InterfaceStats = saneInterface(n.InterfaceStats)
	}
	seen := make(map[string]struct{}, min(len(n.Interfaces), maxInterfaces))
	for _, i := range n.Interfaces {
		if _, twice := seen[i.Name]; twice || !isInterface(i.Name) || len(seen) == maxInterfaces {
			continue
		}
		seen[i.Name] = struct{}{}
		out.Interfaces = append(out.Interfaces, saneInterface(i))
	}
	return out
}

func saneInterface(i statsv1alpha1.InterfaceStats) statsv1alpha1.InterfaceStats {
	return statsv1alpha1.InterfaceStats{Name: i.Name, RxBytes: amount(i.RxBytes), RxErrors: amount(i.RxErrors),
		TxBytes: amount(i.TxBytes), TxErrors: amount(i.TxErrors)}
}

func isInterface(name string) bool {
	return name != "" && len(name) <= maxInterfaceName && utf8.ValidString(name)
}

// saneSandbox and saneContainer replace what cannot be true. The ID is joined with those that
// the agent knows.
func saneSandbox(s *runtime.SandboxUsage, now time.Time) runtime.SandboxUsage {
	return runtime.SandboxUsage{
		ID: s.ID, CPU: saneCPU(s.CPU, now), Memory: saneMemory(s.Memory, now), IO: saneIO(s.IO, now),
		Network: saneNetwork(s.Network, now), Processes: amount(s.Processes),
	}
}

func saneContainer(c *runtime.ContainerUsage, now time.Time) runtime.ContainerUsage {
	return runtime.ContainerUsage{
		ID: c.ID, CPU: saneCPU(c.CPU, now), Memory: saneMemory(c.Memory, now), Swap: saneSwap(c.Swap, now),
		IO:            saneIO(c.IO, now),
		WritableLayer: saneLayer(c.WritableLayer, now), Mountpoint: c.Mountpoint,
	}
}

package cri

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.UsageReporter = (*Runtime)(nil)

// ListUsage implements [runtime.UsageReporter] with ListPodSandboxStats, which is streamed if
// the runtime supports that, or, with a runtime that has no such call, ListContainerStats.
func (r *Runtime) ListUsage(ctx context.Context) (runtime.Usage, error) {
	list, err := listOf(r, func() ([]*criv1.PodSandboxStats, error) {
		return streamed(ctx, r, "StreamPodSandboxStats", r.rs.StreamPodSandboxStats,
			&criv1.StreamPodSandboxStatsRequest{}, (*criv1.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	}, func() ([]*criv1.PodSandboxStats, error) {
		resp, err := call(ctx, r, "ListPodSandboxStats", "", 0, r.rs.ListPodSandboxStats,
			&criv1.ListPodSandboxStatsRequest{})
		return resp.GetStats(), err
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return r.listContainerUsage(ctx)
	}
	if err != nil {
		return runtime.Usage{}, err
	}
	usage := runtime.Usage{Sandboxes: make([]runtime.SandboxUsage, 0, len(list)),
		Containers: make([]runtime.ContainerUsage, 0, len(list))}
	for _, s := range list {
		linux := s.GetLinux()
		usage.Sandboxes = append(usage.Sandboxes, runtime.SandboxUsage{
			ID: s.GetAttributes().GetId(), CPU: cpuStats(linux.GetCpu()), Memory: memoryStats(linux.GetMemory()),
			IO:      ioStats(linux.GetIo()),
			Network: networkStats(linux.GetNetwork()), Processes: number(linux.GetProcess().GetProcessCount()),
		})
		for _, c := range linux.GetContainers() {
			usage.Containers = append(usage.Containers, containerUsage(c))
		}
	}
	return usage, nil
}

// listOf gets a list as a stream, or in one reply if the runtime has no such stream.
func listOf[T any](r *Runtime, stream, once func() ([]T, error)) ([]T, error) {
	if !r.unstreamed.Load() {
		list, err := stream()
		if !errors.Is(err, errors.ErrUnsupported) {
			return list, err
		}
	}
	return once()
}

func (r *Runtime) listContainerUsage(ctx context.Context) (runtime.Usage, error) {
	resp, err := call(ctx, r, "ListContainerStats", "", 0, r.rs.ListContainerStats, &criv1.ListContainerStatsRequest{})
	if err != nil {
		return runtime.Usage{}, err
	}
	usage := runtime.Usage{Containers: make([]runtime.ContainerUsage, 0, len(resp.GetStats()))}
	for _, c := range resp.GetStats() {
		usage.Containers = append(usage.Containers, containerUsage(c))
	}
	return usage, nil
}

func containerUsage(c *criv1.ContainerStats) runtime.ContainerUsage {
	out := runtime.ContainerUsage{
		ID: c.GetAttributes().GetId(), CPU: cpuStats(c.GetCpu()), Memory: memoryStats(c.GetMemory()),
		IO: ioStats(c.GetIo()),
	}
	if s := c.GetSwap(); s != nil {
		out.Swap = &statsv1alpha1.SwapStats{Time: statsTime(s.GetTimestamp()),
			SwapUsageBytes: number(s.GetSwapUsageBytes()), SwapAvailableBytes: number(s.GetSwapAvailableBytes())}
	}
	if l := c.GetWritableLayer(); l != nil {
		out.WritableLayer = &statsv1alpha1.FsStats{Time: statsTime(l.GetTimestamp()),
			UsedBytes: number(l.GetUsedBytes()), InodesUsed: number(l.GetInodesUsed())}
		out.Mountpoint = l.GetFsId().GetMountpoint()
	}
	return out
}

func cpuStats(c *criv1.CpuUsage) *statsv1alpha1.CPUStats {
	if c == nil {
		return nil
	}
	return &statsv1alpha1.CPUStats{
		Time: statsTime(c.GetTimestamp()), UsageCoreNanoSeconds: number(c.GetUsageCoreNanoSeconds()),
		UsageNanoCores: number(c.GetUsageNanoCores()), PSI: psiStats(c.GetPsi()),
	}
}

func memoryStats(m *criv1.MemoryUsage) *statsv1alpha1.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsv1alpha1.MemoryStats{
		Time: statsTime(m.GetTimestamp()), AvailableBytes: number(m.GetAvailableBytes()),
		UsageBytes:      number(m.GetUsageBytes()),
		WorkingSetBytes: number(m.GetWorkingSetBytes()), RSSBytes: number(m.GetRssBytes()),
		PageFaults: number(m.GetPageFaults()), MajorPageFaults: number(m.GetMajorPageFaults()),
		PSI: psiStats(m.GetPsi()),
	}
}

func ioStats(i *criv1.IoUsage) *statsv1alpha1.IOStats {
	if i == nil {
		return nil
	}
	return &statsv1alpha1.IOStats{Time: statsTime(i.GetTimestamp()), PSI: psiStats(i.GetPsi())}
}

func networkStats(n *criv1.NetworkUsage) *statsv1alpha1.NetworkStats {
	if n == nil {
		return nil
	}
	out := &statsv1alpha1.NetworkStats{Time: statsTime(n.GetTimestamp())}
	if d := n.GetDefaultInterface(); d != nil {
		out.InterfaceStats = interfaceStats(d)
	}
	for _, i := range n.GetInterfaces() {
		out.Interfaces = append(out.Interfaces, interfaceStats(i))
	}
	return out
}

func interfaceStats(i *criv1.NetworkInterfaceUsage) statsv1alpha1.InterfaceStats {
	return statsv1alpha1.InterfaceStats{
		Name: i.GetName(), RxBytes: number(i.GetRxBytes()), RxErrors: number(i.GetRxErrors()),
		TxBytes: number(i.GetTxBytes()), TxErrors: number(i.GetTxErrors()),
	}
}

func psiStats(p *criv1.PsiStats) *statsv1alpha1.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d *criv1.PsiData) statsv1alpha1.PSIData {
		return statsv1alpha1.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(),
			Avg300: d.GetAvg300()}
	}
	return &statsv1alpha1.PSIStats{Full: data(p.GetFull()), Some: data(p.GetSome())}
}

func statsTime(ns int64) metav1.Time { return metav1.NewTime(time.Unix(0, ns)) }

// number returns nil for a number that the runtime does not report.
func number(n *criv1.UInt64Value) *uint64 {
	if n == nil {
		return nil
	}
	return &n.Value
}

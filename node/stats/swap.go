package stats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// swap returns the swap that the cgroup uses, and if it has a limit, what is left of it.
func (u *CgroupUsage) swap(now time.Time) *statsv1alpha1.SwapStats {
	if u.Swap == nil {
		return nil
	}
	s := &statsv1alpha1.SwapStats{Time: metav1.NewTime(now), SwapUsageBytes: u.Swap}
	if u.SwapLimit != nil {
		s.SwapAvailableBytes = less(u.SwapLimit, *u.Swap)
	}
	return s
}

// sumSwap returns the swap of a pod, the sum of that of its containers, since CRI has none for pods; nil if none is
// known.
func sumSwap(containers []statsv1alpha1.ContainerStats) *statsv1alpha1.SwapStats {
	var out statsv1alpha1.SwapStats
	for i := range containers {
		if s := containers[i].Swap; s != nil {
			out.Time, out.SwapUsageBytes, out.SwapAvailableBytes = s.Time, sum(out.SwapUsageBytes, s.SwapUsageBytes),
				sum(out.SwapAvailableBytes, s.SwapAvailableBytes)
		}
	}
	if out.SwapUsageBytes == nil && out.SwapAvailableBytes == nil {
		return nil
	}
	return &out
}

package cgroup

import (
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// memoryQoS has what the memory settings of containers depend on.
type memoryQoS struct {
	reserve     bool
	factor      float64
	allocatable int64 // bytes, 0 if it is not known
	page        int64 // bytes
}

// containerMemoryQoS returns the files of cgroup v2 that protect and slow down a container (KEP-2570; kubelet:
// generateLinuxContainerResources).
func containerMemoryQoS(pod *v1.Pod, c *v1.Container, q memoryQoS) map[string]string {
	request, limit := amount(c.Resources.Requests, v1.ResourceMemory), amount(c.Resources.Limits, v1.ResourceMemory)
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	files := map[string]string{}
	switch {
	case !q.reserve || request == 0:
		files["memory.min"], files["memory.low"] = "0", "0"
	case podspec.QOSClass(pod) == v1.PodQOSGuaranteed:
		files["memory.min"] = text(request)
	default:
		files["memory.low"] = text(request)
	}
	if request == limit {
		return files
	}
	upper := limit
	if upper == 0 {
		upper = q.allocatable
	}
	if upper > 0 {
		high := int64(math.Floor((float64(request)+float64(upper-request)*q.factor)/float64(q.page))) * q.page
		if high > request {
			files["memory.high"] = text(high)
		}
	}
	return files
}

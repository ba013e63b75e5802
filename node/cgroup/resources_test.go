package cgroup_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

// list returns amounts of CPU and memory; "" is none.
func list(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

// needs returns requirements: requests and limits.
func needs(cpu, memory, cpuLimit, memoryLimit string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpuLimit, memoryLimit)}
}

func podOf(containers ...v1.ResourceRequirements) *v1.Pod {
	pod := &v1.Pod{}
	for _, r := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
	}
	return pod
}

func withInit(pod *v1.Pod, containers ...v1.ResourceRequirements) *v1.Pod {
	for _, r := range containers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Resources: r})
	}
	return pod
}

// asSidecar makes the first init container a sidecar.
func asSidecar(pod *v1.Pod) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers[0].RestartPolicy = &always
	return pod
}

func withOwn(own v1.ResourceRequirements, pod *v1.Pod) *v1.Pod {
	pod.Spec.Resources = &own
	return pod
}

// The numbers are those of TestResourceConfigForPod and TestMilliCPUToQuota in pkg/kubelet/cm of kubelet 1.37.
func TestPodResources(t *testing.T) {
	const mi = int64(1) << 20
	burst, one := needs("100m", "100Mi", "200m", "200Mi"), needs("100m", "100Mi", "", "")
	full := needs("100m", "100Mi", "100m", "100Mi")
	tuned := cgroup.Policy{CPUPeriod: 5000}
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		policy cgroup.Policy
		want   cgroup.Resources
	}{
		"best effort":            {podOf(needs("", "", "", "")), cgroup.Policy{}, cgroup.Resources{CPUShares: 2}},
		"burstable, no limits":   {podOf(one), cgroup.Policy{}, cgroup.Resources{CPUShares: 102}},
		"burstable, limits":      {podOf(burst), cgroup.Policy{}, cgroup.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"burstable, no quota":    {podOf(burst), cgroup.Policy{NoCPUQuota: true}, cgroup.Resources{CPUShares: 102, CPUQuota: -1, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"burstable, some limits": {podOf(burst, one), cgroup.Policy{}, cgroup.Resources{CPUShares: 204}},
		"burstable, period":      {podOf(burst), tuned, cgroup.Resources{CPUShares: 102, CPUQuota: 1000, CPUPeriod: 5000, MemoryMax: 200 * mi}},
		"guaranteed":             {podOf(full), cgroup.Policy{}, cgroup.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryMax: 100 * mi}},
		"guaranteed, no quota":   {podOf(full), cgroup.Policy{NoCPUQuota: true}, cgroup.Resources{CPUShares: 102, CPUQuota: -1, CPUPeriod: 100000, MemoryMax: 100 * mi}},
		"guaranteed, period":     {podOf(full), tuned, cgroup.Resources{CPUShares: 102, CPUQuota: 1000, CPUPeriod: 5000, MemoryMax: 100 * mi}},
		"init containers, some limits": {
			withInit(podOf(needs("100m", "100m", "100m", "100Mi"), needs("100m", "100m", "", "")),
				needs("100m", "100m", "100m", "100Mi"), needs("100m", "100m", "", "")),
			cgroup.Policy{}, cgroup.Resources{CPUShares: 204},
		},
		"an unlimited init container after a limited sidecar": {asSidecar(withInit(podOf(full), full, one)), cgroup.Policy{}, cgroup.Resources{CPUShares: 204, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"own requests":                {withOwn(needs("100m", "100Mi", "", ""), podOf(needs("", "", "", ""))), cgroup.Policy{}, cgroup.Resources{CPUShares: 102}},
		"own requests, container's":   {withOwn(needs("100m", "100Mi", "", ""), podOf(needs("10m", "50Mi", "", ""))), cgroup.Policy{}, cgroup.Resources{CPUShares: 102}},
		"own limits":                  {withOwn(burst, podOf(needs("", "", "", ""))), cgroup.Policy{}, cgroup.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"own limits, container's":     {withOwn(burst, podOf(needs("10m", "50Mi", "50m", "100Mi"))), cgroup.Policy{}, cgroup.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"own requests, limits inside": {withOwn(needs("200m", "300Mi", "", ""), podOf(needs("200m", "200Mi", "200m", "200Mi"))), cgroup.Policy{}, cgroup.Resources{CPUShares: 204, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"own, guaranteed":             {withOwn(full, podOf(needs("", "", "", ""))), cgroup.Policy{}, cgroup.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryMax: 100 * mi}},
		"processes":                   {podOf(one), cgroup.Policy{PodPidsLimit: 4096}, cgroup.Resources{CPUShares: 102, PidsMax: 4096}},
		"processes, no limit":         {podOf(one), cgroup.Policy{PodPidsLimit: -1}, cgroup.Resources{CPUShares: 102}},
		"smallest quota":              {podOf(needs("5m", "", "5m", "1Mi")), cgroup.Policy{}, cgroup.Resources{CPUShares: 5, CPUQuota: 1000, CPUPeriod: 100000, MemoryMax: mi}},
		"memory QoS, burstable":       {podOf(one), cgroup.Policy{MemoryReservation: true}, cgroup.Resources{CPUShares: 102, MemoryLow: new(100 * mi)}},
		"memory QoS, guaranteed":      {podOf(full), cgroup.Policy{MemoryReservation: true}, cgroup.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryMax: 100 * mi, MemoryMin: new(100 * mi)}},
		"throttled, not as a whole":   {podOf(burst), cgroup.Policy{MemoryThrottlingFactor: 0.9}, cgroup.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi}},
		"throttled":                   {withOwn(burst, podOf(one)), cgroup.Policy{MemoryThrottlingFactor: 0.9}, cgroup.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: 200 * mi, MemoryHigh: 190 * mi}},
		"throttled, guaranteed":       {withOwn(full, podOf(one)), cgroup.Policy{MemoryThrottlingFactor: 0.9}, cgroup.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryMax: 100 * mi}},
		"memory QoS, best effort":     {podOf(needs("", "", "", "")), cgroup.Policy{MemoryReservation: true}, cgroup.Resources{CPUShares: 2}},
	} {
		tc.want.HugePages = map[string]int64{}
		assert.Equal(t, tc.want, cgroup.PodResources(tc.pod, tc.policy), name)
	}
}

func TestOverheadAndHugePages(t *testing.T) {
	pod := podOf(needs("100m", "100Mi", "200m", "200Mi"))
	pod.Spec.Overhead = list("50m", "10Mi")
	pod.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = resource.MustParse("4Mi")
	pod.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	r := cgroup.PodResources(pod, cgroup.Policy{})
	assert.Equal(t, cgroup.Resources{
		CPUShares: 153, CPUQuota: 25000, CPUPeriod: 100000, MemoryMax: 210 << 20,
		HugePages: map[string]int64{"2MB": 4 << 20},
	}, r)
}

// The sources of the numbers: getCPUWeight, MilliCPUToShares and cpuWeightToCPUShares in pkg/kubelet/cm.
func TestSharesAndWeights(t *testing.T) {
	for milli, want := range map[int64][2]uint64{
		-1: {2, 1}, 0: {2, 1}, 1: {2, 1}, 2: {2, 1}, 3: {3, 1}, 100: {102, 4}, 500: {512, 20}, 900: {921, 36},
		1000: {1024, 39}, 2000: {2048, 79}, 100_000: {102400, 3906},
		256_000: {262144, 10000}, 300_000: {262144, 10000}, math.MaxInt64: {262144, 10000},
	} {
		shares := cgroup.Shares(milli)
		assert.Equal(t, want, [2]uint64{shares, cgroup.Weight(shares)}, milli)
	}
	assert.Equal(t, uint64(1), cgroup.Weight(0))
}

// Any amounts that a pod can request have a sum and valid settings.
func TestHugeAmounts(t *testing.T) {
	huge := needs("9E", "9E", "9E", "9E")
	r := cgroup.PodResources(podOf(huge, huge, huge), cgroup.Policy{CPUPeriod: 1_000_000, MemoryReservation: true})
	assert.Equal(t, uint64(262144), r.CPUShares)
	assert.Positive(t, r.CPUQuota)
	assert.Positive(t, r.MemoryMax)
}

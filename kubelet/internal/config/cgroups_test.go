package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

const endpointFlag = "--container-runtime-endpoint=unix:///cri.sock"

func TestCgroupOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		args   []string
		want   func(o *cgroup.ManagerOptions)
	}{
		"kubelet's defaults": {"", nil, func(*cgroup.ManagerOptions) {}},
		"nothing enforced":   {header + "enforceNodeAllocatable: [none]\n", nil, func(o *cgroup.ManagerOptions) { o.Enforce = nil }},
		"an empty list":      {header + "enforceNodeAllocatable: []\n", nil, func(o *cgroup.ManagerOptions) { o.Enforce = nil }},
		"a file": {
			header + "podPidsLimit: 100\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 5ms\nsystemReserved: {memory: 1Gi, " +
				"pid: \"1000\"}\nkubeReserved: {cpu: 100m}\nsystemReservedCgroup: " +
				"/system.slice\nkubeReservedCgroup: /kube.slice\n" +
				"enforceNodeAllocatable: [pods, system-reserved, kube-reserved-compressible]\nkubeletCgroups: " +
				"/kube.slice/agent\nsystemCgroups: /system\nqosReserved: {memory: 50%}\n" +
				"memoryThrottlingFactor: 0.8\nmemoryReservationPolicy: TieredReservation\nfeatureGates: " +
				"{QOSReserved: true}\n", nil, func(o *cgroup.ManagerOptions) {
				o.Policy = cgroup.Policy{PodPidsLimit: 100, NoCPUQuota: true, CPUPeriod: 5000, MemoryReservation: true,
					MemoryThrottlingFactor: 0.8}
				o.ReservedMemory = new(int64(50))
				o.SystemReserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"),
					cgroup.PIDs: resource.MustParse("1000")}
				o.KubeReserved = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
				o.SystemReservedCgroup, o.KubeReservedCgroup, o.KubeletCgroup, o.SystemCgroup = "/system.slice",
					"/kube.slice", "/kube.slice/agent", "/system"
				o.Enforce = []cgroup.Enforcement{cgroup.EnforcePods, cgroup.EnforceSystemReserved,
					cgroup.EnforceKubeReservedCompressible}
			},
		},
		"flags": {
			"", []string{
				"--pod-max-pids=7", "--kube-reserved=cpu=1", "--kube-reserved-cgroup=/k",
				"--enforce-node-allocatable=kube-reserved", "--kubelet-cgroups=/a",
				"--system-cgroups=/s", "--runtime-cgroups=/r", "--qos-reserved=memory=10%",
				"--feature-gates=QOSReserved=true",
			}, func(o *cgroup.ManagerOptions) {
				o.Policy.PodPidsLimit, o.KubeReserved, o.KubeReservedCgroup = 7,
					v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, "/k"
				o.Enforce, o.KubeletCgroup, o.SystemCgroup, o.ReservedMemory = []cgroup.Enforcement{
					cgroup.EnforceKubeReserved}, "/a", "/s", new(int64(10))
			},
		},
		"without memory QoS": {header + "memoryThrottlingFactor: 0.9\nfeatureGates: {MemoryQoS: false}\n", nil,
			func(o *cgroup.ManagerOptions) { o.MemoryQoS, o.Policy.MemoryThrottlingFactor = false, 0.9 }},
		"reserved CPUs": {header + "systemReserved: {cpu: 100m}\nkubeReserved: {cpu: 100m}\nreservedSystemCPUs: 0-1\n", nil, func(o *cgroup.ManagerOptions) {
			o.SystemReserved = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(2, resource.DecimalSI)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parsed(t, tc.config, append(tc.args, endpointFlag)...)
			require.NoError(t, err)
			want := cgroup.ManagerOptions{
				Policy: cgroup.Policy{CPUPeriod: 100_000, PodPidsLimit: -1}, MemoryQoS: true,
				Enforce:        []cgroup.Enforcement{cgroup.EnforcePods},
				SystemReserved: v1.ResourceList{}, KubeReserved: v1.ResourceList{},
			}
			tc.want(&want)
			got, err := s.CgroupOptions()
			require.NoError(t, err)
			assert.Equal(t, want, got)
			pods, err := s.Cgroups(func() string { return "" })
			require.NoError(t, err)
			_, err = cgroup.NewManager(pods, got)
			require.NoError(t, err)
		})
	}
}

func TestCgroupSettingsThatAreWrong(t *testing.T) {
	for config, want := range map[string]string{
		"enforceNodeAllocatable: [all]":                                                                 `"all": must be pods`,
		"enforceNodeAllocatable: [pods, none]":                                                          "none cannot stand beside others",
		"enforceNodeAllocatable: [pods, pods]":                                                          "twice",
		"enforceNodeAllocatable: [system-reserved]":                                                     "systemReservedCgroup",
		"enforceNodeAllocatable: [kube-reserved-compressible]":                                          "kubeReservedCgroup",
		"{enforceNodeAllocatable: [pods], cgroupsPerQOS: false}":                                        "needs cgroupsPerQOS",
		"{enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible], kubeReservedCgroup: /k}": "exclude each other",
		"{reservedSystemCPUs: '0', kubeReservedCgroup: /k}":                                             "reservedSystemCPUs",
		"systemCgroups: /":            "root cgroup",
		"memoryThrottlingFactor: 1.5": "memoryThrottlingFactor",
		"{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: false}}": "feature gate MemoryQoS",
		"{memoryThrottlingFactor: 0.8, featureGates: {MemoryQoS: false}}":                "feature gate MemoryQoS",
		"memoryReservationPolicy: Some":                                                  "must be None",
		"{qosReserved: {memory: '50'}, featureGates: {QOSReserved: true}}":               "percentage",
		"{qosReserved: {cpu: 50%}, featureGates: {QOSReserved: true}}":                   "only memory",
	} {
		if config[0] == '{' {
			config = config[1 : len(config)-1]
		}
		_, err := parsed(t, header+flowLines(config), endpointFlag)
		require.ErrorContains(t, err, want, config)
	}
}

// flowLines returns the fields of a YAML flow mapping, one a line.
func flowLines(config string) string {
	out, depth := []byte{}, 0
	for i := range len(config) {
		switch c := config[i]; {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			out = append(out, '\n')
			continue
		case c == ' ' && len(out) > 0 && out[len(out)-1] == '\n':
			continue
		}
		out = append(out, config[i])
	}
	return string(append(out, '\n'))
}

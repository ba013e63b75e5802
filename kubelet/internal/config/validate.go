package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// validate returns an error for each value that is wrong.
func (s *Settings) validate() error {
	var errs []error
	if s.RootDir == "" {
		errs = append(errs, errors.New("there is no directory for the agent's files: give one with --root-dir"))
	}
	if name, err := s.NodeName(); err != nil {
		errs = append(errs, err)
	} else if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("the name of the node, %q: %s; give another one with --hostname-override", name,
			strings.Join(problems, "; ")))
	}
	if !slices.Contains(terminal.Modes(), s.Show) {
		errs = append(errs, fmt.Errorf("--show %q: must be auto, table, lines or none", s.Show))
	}
	if _, err := version.ParseGeneric(s.StaticPodUIDs); s.StaticPodUIDs != "" && err != nil {
		errs = append(errs, fmt.Errorf("--static-pod-uids %q: must be a version of Kubernetes, such as 1.36", s.StaticPodUIDs))
	}
	if d := s.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; d < time.Second || d > 300*time.Second {
		errs = append(errs, fmt.Errorf("crashLoopBackOff.maxContainerRestartPeriod %s: must be between 1s and 300s", d))
	}
	for field, d := range map[string]time.Duration{
		"syncFrequency": s.SyncFrequency.Duration, "fileCheckFrequency": s.FileCheckFrequency.Duration,
		"httpCheckFrequency": s.HTTPCheckFrequency.Duration, "runtimeRequestTimeout": s.RuntimeRequestTimeout.Duration,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be above 0", field, d))
		}
	}
	if n := s.MaxParallelImagePulls; n != nil && (*n < 1 || *n > 1 && *s.SerializeImagePulls) {
		errs = append(errs, fmt.Errorf("maxParallelImagePulls %d: must be at least 1, and no more beside "+
			"serializeImagePulls", *n))
	}
	errs = append(errs, s.validateGates(), s.validateTracing())
	errs = append(errs, s.validateImageGC()...)
	errs = append(errs, s.validateSecurity()...)
	errs = append(errs, s.validateShutdown()...)
	errs = append(errs, s.validateMachine()...)
	errs = append(errs, s.validateUsers())
	errs = append(errs, s.validateMemory()...)
	errs = append(errs, s.validateLogs()...)
	errs = append(errs, s.validateLogging()...)
	errs = append(errs, s.validateProviders())
	errs = append(errs, s.validateServer()...)
	errs = append(errs, s.validateCluster()...)
	errs = append(errs, s.validateCgroups()...)
	errs = append(errs, s.validateTopology()...)
	if d := s.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		errs = append(errs, fmt.Errorf("cpuCFSQuotaPeriod %s: must be between 1ms and 1s", d))
	}
	for _, dns := range s.ClusterDNS {
		if net.ParseIP(dns) == nil {
			errs = append(errs, fmt.Errorf("clusterDNS %q: not an IP address", dns))
		}
	}
	if s.MaxPods < 0 {
		errs = append(errs, fmt.Errorf("maxPods %d: must not be negative", s.MaxPods))
	}
	if s.PodsPerCore < 0 {
		errs = append(errs, fmt.Errorf("podsPerCore %d: must not be negative", s.PodsPerCore))
	}
	if *s.RegistryPullQPS < 0 || s.RegistryBurst < 0 {
		errs = append(errs, fmt.Errorf("registryPullQPS %d and registryBurst %d: must not be negative",
			*s.RegistryPullQPS, s.RegistryBurst))
	}
	if _, err := s.Reserved(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// validateImageGC judges as kubelet does.
func (s *Settings) validateImageGC() (errs []error) {
	high, low := *s.ImageGCHighThresholdPercent, *s.ImageGCLowThresholdPercent
	for field, percent := range map[string]int32{"imageGCHighThresholdPercent": high,
		"imageGCLowThresholdPercent": low} {
		if percent < 0 || percent > 100 {
			errs = append(errs, fmt.Errorf("%s %d: must be between 0 and 100", field, percent))
		}
	}
	if low >= high {
		errs = append(errs,
			fmt.Errorf("imageGCLowThresholdPercent %d: must be less than imageGCHighThresholdPercent %d", low, high))
	}
	minAge, maxAge := s.ImageMinimumGCAge.Duration, s.ImageMaximumGCAge.Duration
	for field, age := range map[string]time.Duration{"imageMinimumGCAge": minAge, "imageMaximumGCAge": maxAge} {
		if age < 0 {
			errs = append(errs, fmt.Errorf("%s %s: must not be negative", field, age))
		}
	}
	if maxAge > 0 && maxAge <= minAge {
		errs = append(errs, fmt.Errorf("imageMaximumGCAge %s: must be greater than imageMinimumGCAge %s", maxAge,
			minAge))
	}
	return errs
}

// PodLimit returns the largest number of pods on a machine with that many CPUs.
func (s *Settings) PodLimit(cpus int) int {
	limit := int(s.MaxPods)
	if perCore := int(s.PodsPerCore) * cpus; perCore > 0 {
		limit = min(limit, perCore)
	}
	return limit
}

// Reserved returns the resources that are reserved for the system and the agent, added up. The
// number of reservedSystemCPUs replaces the CPU of both, as with kubelet.
func (s *Settings) Reserved() (v1.ResourceList, error) {
	system, kube, err := s.reservedLists()
	if err != nil {
		return nil, err
	}
	for name, q := range kube {
		total := system[name]
		total.Add(q)
		system[name] = total
	}
	return system, nil
}

// reservedLists returns the resources that are reserved for the system, and for the agent.
func (s *Settings) reservedLists() (system, kube v1.ResourceList, err error) {
	set, err := s.reservedCPUs()
	if err != nil {
		return nil, nil, err
	}
	cpus := set.Size()
	parse := func(field string, reserved map[string]string) (v1.ResourceList, error) {
		list := v1.ResourceList{}
		for name, text := range reserved {
			if cpus > 0 && name == string(v1.ResourceCPU) {
				continue
			}
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s.%s %q: %w", field, name, text, err)
			}
			if q.Sign() < 0 {
				return nil, fmt.Errorf("%s.%s %q: must not be negative", field, name, text)
			}
			list[v1.ResourceName(name)] = q
		}
		return list, nil
	}
	if system, err = parse("systemReserved", s.SystemReserved); err != nil {
		return nil, nil, err
	}
	if kube, err = parse("kubeReserved", s.KubeReserved); err != nil {
		return nil, nil, err
	}
	if cpus > 0 {
		system[v1.ResourceCPU] = *resource.NewQuantity(int64(cpus), resource.DecimalSI)
	}
	return system, kube, nil
}

// CheckReservedCPUs returns an error if reservedSystemCPUs has a CPU that is not online, as kubelet
// does when it starts. online is the list of the kernel, such as 0-1,4.
func (s *Settings) CheckReservedCPUs(online string) error {
	if s.ReservedSystemCPUs == "" {
		return nil
	}
	reserved, err := s.reservedCPUs()
	if err != nil {
		return err
	}
	machine, err := cpuset.Parse(strings.TrimSpace(online))
	if err != nil {
		return fmt.Errorf("the CPUs that are online: %w", err)
	}
	if offline := reserved.Difference(machine); !offline.IsEmpty() {
		return fmt.Errorf("reservedSystemCPUs %q: not online: %s; the machine has %s", s.ReservedSystemCPUs, offline,
			machine)
	}
	return nil
}

// reservedCPUs returns the CPUs in reservedSystemCPUs, such as 0-1,4.
func (s *Settings) reservedCPUs() (cpuset.CPUSet, error) {
	const limit = 1 << 13 // CPUs that Linux can have; a larger range would only take memory
	fail := func(err error) (cpuset.CPUSet, error) {
		return cpuset.New(), fmt.Errorf("reservedSystemCPUs %q: %w", s.ReservedSystemCPUs, err)
	}
	for number := range strings.FieldsFuncSeq(s.ReservedSystemCPUs, func(r rune) bool { return r == ',' || r == '-' }) {
		if n, err := strconv.Atoi(number); err == nil && n >= limit {
			return fail(fmt.Errorf("there is no CPU %d", n))
		}
	}
	set, err := cpuset.Parse(s.ReservedSystemCPUs)
	if err != nil {
		return fail(err)
	}
	return set, nil
}

package kubelet

import (
	"errors"
	"net"
	"os"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// prepareHost sets what kubelet sets of the machine and of its process, and fails if the settings
// forbid an agent on this machine. What may not be set is one line in the log: a warning for root, who
// expects it to be set, unless the agent is in a user namespace (KEP-2033).
func prepareHost(s *config.Settings, log logr.Logger) error {
	facts := host.Read()
	plan := host.Decide(s, facts)
	if len(plan.Refused) > 0 {
		return errors.Join(plan.Refused...)
	}
	for _, w := range plan.Warnings {
		warn(log, w)
	}
	switch err := plan.Set(); {
	case err == nil:
	case !s.OnMachine(): // nobody expects it
		log.V(1).Info("Not all settings of the machine and of this process were made", "reason", err.Error())
	case facts.UserNamespace:
		log.Info("Not all settings of the machine and of this process were made, since the agent runs in a user namespace",
			"reason", err.Error())
	case facts.Root:
		warn(log, "Not all settings of the machine and of this process were made: "+err.Error())
	default:
		log.Info("Not all settings of the machine and of this process were made, since the agent does not run as root",
			"reason", err.Error())
	}
	return nil
}

// detectHost returns what pods may know of the machine.
func detectHost(s *config.Settings, nodeName string) (*runtime.Host, error) {
	h, err := kubeletkit.DetectHost(s.RootDir)
	if err != nil {
		return nil, err
	}
	h.NodeName = nodeName
	h.PodLogsDir = s.PodLogsDir
	h.ClusterDNS, h.ClusterDomain = s.ClusterDNS, s.ClusterDomain
	if s.ResolverConfig != nil {
		h.ResolvConf = *s.ResolverConfig
	}
	given, err := s.NodeIPs()
	if err != nil {
		return nil, err
	}
	if len(given) > 0 && !given[0].IsUnspecified() {
		h.IPs = nil
		for _, ip := range given {
			h.IPs = append(h.IPs, ip.String())
		}
	}
	if online, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil { // of Linux
		if err := s.CheckReservedCPUs(string(online)); err != nil {
			return nil, err
		}
	}
	if !*s.LocalStorageCapacityIsolation { // as in a node object without it: pods can request none
		h.Allocatable[v1.ResourceEphemeralStorage] = resource.Quantity{}
	}
	reserved, err := s.Reserved()
	if err != nil {
		return nil, err
	}
	h.Allocatable, err = clusternode.Allocatable(h.Allocatable, reserved, s.EvictionHard)
	return h, err
}

// hostIPs returns the function that has the addresses of the node; nil if they are given.
func hostIPs(s *config.Settings) (func() []string, error) {
	given, err := s.NodeIPs()
	if err != nil {
		return nil, err
	}
	var preferred net.IP
	if len(given) > 0 {
		if preferred = given[0]; !preferred.IsUnspecified() {
			return nil, nil
		}
	}
	return kubeletkit.DetectHostIPs(preferred), nil
}

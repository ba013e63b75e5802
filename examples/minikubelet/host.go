package main

import (
	"fmt"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubeletkit/kubeletkit"
	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// detectHost returns what pods may know of the machine.
func detectHost(s *config.Settings, nodeName string) (*runtime.Host, error) {
	h, err := kubeletkit.DetectHost()
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
	var ips []string
	for _, ip := range given {
		if ip.IsUnspecified() { // only the family is given
			if ip, err = utilnet.ResolveBindAddress(ip); err != nil {
				return nil, fmt.Errorf("--node-ip %s: %w", s.NodeIP, err)
			}
		}
		ips = append(ips, ip.String())
	}
	if len(ips) > 0 {
		h.IPs = ips
	}
	reserved, err := s.Reserved()
	if err != nil {
		return nil, err
	}
	h.Allocatable, err = clusternode.Allocatable(h.Allocatable, reserved, s.EvictionHard)
	return h, err
}

package main

import (
	"fmt"
	"net"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// detectHost returns what pods may know of the machine.
func detectHost(s *config.Settings, node string) (*runtime.Host, error) {
	h, err := kubeletkit.DetectHost()
	if err != nil {
		return nil, err
	}
	h.NodeName = node
	h.PodLogsDir = s.PodLogsDir
	h.ClusterDNS, h.ClusterDomain = s.ClusterDNS, s.ClusterDomain
	if s.ResolverConfig != nil {
		h.ResolvConf = *s.ResolverConfig
	}
	if s.NodeIP != "" {
		h.IPs = nil
		for text := range strings.SplitSeq(s.NodeIP, ",") {
			ip := net.ParseIP(strings.TrimSpace(text))
			if ip == nil {
				return nil, fmt.Errorf("--node-ip %q: not an IP address", text)
			}
			h.IPs = append(h.IPs, ip.String())
		}
	}
	if h.Allocatable == nil {
		h.Allocatable = v1.ResourceList{}
	}
	reserved, err := s.Reserved()
	if err != nil {
		return nil, err
	}
	for name, q := range reserved {
		if total, ok := h.Allocatable[name]; ok {
			total.Sub(q)
			h.Allocatable[name] = total
		}
	}
	return h, nil
}

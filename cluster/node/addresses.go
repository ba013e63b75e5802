package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// HostAddresses is an [Addresses]: the addresses of the machine's interfaces.
//
// The internal address is, as in kubelet, the first of: IPs; Hostname if it is an address; an
// address that /etc/hosts gives the node's name and the machine has; the address of the
// interface of the default route. kubelet also sends requests to name servers. This agent does not, since
// a name server that does not answer would delay the registration: give IPs instead.
type HostAddresses struct {
	// Hostname is the address of type Hostname.
	Hostname string
	// IPs are the address of the node, or two of different families. A single 0.0.0.0 or ::
	// is no address; its family is preferred. If empty, IPv4 is preferred.
	IPs []net.IP
	// WaitForProvider leaves the internal address to the cloud provider if there are no IPs.
	WaitForProvider bool

	route nodenet.Route

	// For tests; if nil, the machine's are used.
	interfaceAddrs func() ([]net.Addr, error)
	defaultRoute   func(net.IP) (net.IP, error)
	hostsFile      string
}

var _ Addresses = (*HostAddresses)(nil)

// NodeAddresses implements [Addresses]. It looks at the interfaces each time, since addresses
// change.
func (h *HostAddresses) NodeAddresses(context.Context) ([]v1.NodeAddress, error) {
	return h.addresses()
}

// HostIPs returns the internal addresses of NodeAddresses, for the pods of a node that has no
// node object yet. There are none if the cloud provider has them. It is safe for concurrent use.
func (h *HostAddresses) HostIPs() ([]string, error) {
	addresses, err := h.addresses()
	var ips []string
	for _, a := range addresses {
		if a.Type == v1.NodeInternalIP {
			ips = append(ips, a.Address)
		}
	}
	return ips, err
}

func (h *HostAddresses) addresses() ([]v1.NodeAddress, error) {
	hostname := v1.NodeAddress{Type: v1.NodeHostName, Address: h.Hostname}
	var given []net.IP
	for _, ip := range h.IPs {
		if !ip.IsUnspecified() {
			given = append(given, ip)
		}
	}
	if h.WaitForProvider && len(h.IPs) == 0 {
		return []v1.NodeAddress{hostname}, nil
	}
	if len(given) == 0 {
		ip, err := h.find()
		if err != nil {
			return nil, err
		}
		return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: ip.String()}, hostname}, nil
	}
	var out []v1.NodeAddress
	for _, ip := range given {
		if err := h.check(ip); err != nil {
			return nil, err
		}
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, hostname), nil
}

// find returns the address of a machine whose address is not given.
func (h *HostAddresses) find() (net.IP, error) {
	if ip := net.ParseIP(h.Hostname); ip != nil {
		return ip, nil
	}
	preferred := net.IPv4zero
	if len(h.IPs) > 0 {
		preferred = h.IPs[0]
	}
	var other net.IP
	for _, ip := range h.fromHosts() {
		if h.check(ip) != nil {
			continue
		}
		if isIPv4(ip) == isIPv4(preferred) {
			return ip, nil
		}
		if other == nil {
			other = ip
		}
	}
	if other != nil {
		return other, nil
	}
	resolve := h.defaultRoute
	if resolve == nil {
		resolve = h.route.Address
	}
	if len(h.IPs) == 0 {
		preferred = nil
	}
	ip, err := resolve(preferred)
	if err != nil {
		return nil, fmt.Errorf("the node has no address: %w; give one (--node-ip)", err)
	}
	return ip, nil
}

// fromHosts returns the addresses of the hostname in /etc/hosts.
func (h *HostAddresses) fromHosts() (ips []net.IP) {
	path := h.hostsFile
	if path == "" {
		path = "/etc/hosts"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		ip := net.ParseIP(fields[0])
		if ip != nil && slices.ContainsFunc(fields[1:],
			func(name string) bool { return strings.EqualFold(name, h.Hostname) }) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// check refuses what kubelet refuses: addresses that others cannot reach, and those that the
// machine does not have.
func (h *HostAddresses) check(ip net.IP) error {
	switch {
	case ip.IsLoopback():
		return fmt.Errorf("address %s of the node: must not be a loopback address", ip)
	case ip.IsMulticast():
		return fmt.Errorf("address %s of the node: must not be a multicast address", ip)
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("address %s of the node: must not be a link-local address", ip)
	case ip.IsUnspecified():
		return errors.New("the address of the node must not be all zeros")
	}
	list := h.interfaceAddrs
	if list == nil {
		list = net.InterfaceAddrs
	}
	addrs, err := list()
	if err != nil {
		return fmt.Errorf("addresses of the machine: %w", err)
	}
	for _, a := range addrs {
		if own, ok := a.(*net.IPNet); ok && own.IP.Equal(ip) {
			return nil
		}
	}
	return fmt.Errorf("address %s of the node: no interface of this machine has it", ip)
}

func isIPv4(ip net.IP) bool { return ip.To4() != nil }

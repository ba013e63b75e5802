package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// hostIPs has the addresses that the pods of the node get: those of the node object, and before
// it has any, those that are found locally.
type hostIPs struct {
	local func() []string

	mu     sync.Mutex
	object []string // of the node object; nil: it has none, or there is no object
	last   []string // what get has returned last
	asked  bool     // whether get was called
}

// get returns the addresses as they are now.
func (h *hostIPs) get() []string {
	h.mu.Lock()
	known := h.object
	h.mu.Unlock()
	var local []string
	if known == nil {
		local = h.local()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.asked = h.object, true
	if h.object == nil {
		h.last = local
	}
	return h.last
}

// update takes in the addresses of the node object, and reports whether they differ from what
// get has returned.
func (h *hostIPs) update(object []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.object = object
	if !h.asked || object == nil || slices.Equal(object, h.last) {
		return false
	}
	h.last = object
	return true
}

// objectIPs returns the addresses of a node object as kubelet takes them: the first one of the
// internal and then the external ones, and the first one of the other family.
func objectIPs(object *v1.Node) []string {
	var ips []netip.Addr
	for _, typ := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range object.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != typ || err != nil {
				continue
			}
			ip = ip.Unmap()
			if len(ips) == 0 || len(ips) == 1 && ip.Is4() != ips[0].Is4() {
				ips = append(ips, ip)
			}
		}
	}
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

// localIPs returns the function that has the addresses while the node object has none. They are
// those that the node object will get, if these can be asked for.
func localIPs(opts *kubeletkit.Options, addresses node.Addresses) func() []string {
	if h, ok := runtime.Optional[*node.HostAddresses](addresses); ok {
		return nodenet.CachedIPs(h.HostIPs)
	}
	var given []string
	if opts.Host != nil {
		given = opts.Host.IPs
	}
	return nodenet.HostIPs(opts.HostIPs, given)
}

// buildHostIPs gives the agent the addresses of the node.
func (n *Node) buildHostIPs(opts *kubeletkit.Options) {
	if n.config.Node.Addresses == nil {
		n.config.Node.Addresses = &node.HostAddresses{Hostname: cmp.Or(n.config.Node.Hostname, n.config.NodeName)}
	}
	n.hostIPs = &hostIPs{local: localIPs(opts, n.config.Node.Addresses)}
	opts.HostIPs = n.hostIPs.get
}

// addressesChanged has the agent sync all pods if the node object has other addresses.
func (n *Node) addressesChanged(object *v1.Node) {
	if !n.hostIPs.update(objectIPs(object)) {
		return
	}
	for _, pod := range n.agent.Pods() {
		n.sync(pod.UID)
	}
}

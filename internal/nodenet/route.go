package nodenet

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	readAfter    = 5 * time.Minute  // the longest time between two reads of the routes
	nowhereAfter = time.Minute      // the same while the kernel has no route
	retryAfter   = 10 * time.Second // the same after a read that failed although the kernel has one
)

// Route finds the address on the interface of the default route. The kernel takes milliseconds to
// write down the routes of a machine with hundreds of pods, so they are read again only if the
// kernel chooses another source address for packets to elsewhere, which is quick to ask, or after
// 5 minutes, or one minute while there is no default route. The zero value is ready for use. All
// methods are safe for concurrent use.
type Route struct {
	read   func(preferred net.IP) (net.IP, error) // for tests; nil: of the machine
	source func(preferred net.IP) netip.Addr      // for tests; nil: of the machine

	mu        sync.Mutex
	known     net.IP // what was read last, with err
	err       error
	preferred string // what known was found for
	from      netip.Addr
	due       time.Time
}

// Address returns the address. It fails while there is no such route. preferred is an address of
// the preferred family; nil means IPv4.
func (r *Route) Address(preferred net.IP) (net.IP, error) {
	read, source := r.read, r.source
	if read == nil {
		read = utilnet.ResolveBindAddress
	}
	if source == nil {
		source = sourceAddress
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, from := time.Now(), source(preferred)
	if from == r.from && string(preferred) == r.preferred && now.Before(r.due) {
		return r.known, r.err
	}
	r.known, r.err = read(preferred)
	r.preferred, r.from, r.due = string(preferred), from, now.Add(readAfter)
	switch {
	case !from.IsValid() && r.err == nil:
		r.due = now // no change would be seen
	case !from.IsValid():
		r.due = now.Add(nowhereAfter)
	case r.err != nil:
		r.due = now.Add(retryAfter)
	}
	return r.known, r.err
}

// sourceAddress returns the address that packets to elsewhere would come from, by the preferred
// family, or by the other one if there is no route; the zero address without any. No packet is
// sent: the destinations are those that RFC 5737 and RFC 3849 keep for documentation. With IPv6 the
// kernel looks at the addresses of all interfaces.
func sourceAddress(preferred net.IP) netip.Addr {
	elsewhere := []string{"192.0.2.1:9", "[2001:db8::1]:9"}
	if preferred != nil && preferred.To4() == nil {
		slices.Reverse(elsewhere)
	}
	for _, to := range elsewhere {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
		if err != nil {
			continue
		}
		local, ok := conn.LocalAddr().(*net.UDPAddr)
		_ = conn.Close()
		if ok {
			return local.AddrPort().Addr()
		}
	}
	return netip.Addr{}
}

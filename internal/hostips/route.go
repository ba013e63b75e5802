package hostips

import (
	"net"
	"net/netip"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	readAfter  = 5 * time.Minute  // the longest time between two reads of the routes
	retryAfter = 10 * time.Second // the same while there is no default route
)

// Route finds the address on the interface of the default route. The kernel takes milliseconds to
// write down the routes of a machine with hundreds of pods, so they are read again only if the
// kernel chooses another source address for packets to elsewhere, which is quick to ask, or after
// 5 minutes, or 10 s while there is no default route. The zero value is ready for use. All methods
// are safe for concurrent use.
type Route struct {
	read    func(preferred net.IP) (net.IP, error) // for tests; nil: of the machine
	sources func() [2]netip.Addr                   // for tests; nil: of the machine

	mu        sync.Mutex
	known     net.IP // what was read last, with err
	err       error
	preferred string // what known was found for
	from      [2]netip.Addr
	due       time.Time
}

// Address returns the address. It fails while there is no such route. preferred is an address of
// the preferred family; nil means IPv4.
func (r *Route) Address(preferred net.IP) (net.IP, error) {
	read, sources := r.read, r.sources
	if read == nil {
		read = utilnet.ResolveBindAddress
	}
	if sources == nil {
		sources = sourceAddresses
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, from := time.Now(), sources()
	if from == r.from && string(preferred) == r.preferred && now.Before(r.due) {
		return r.known, r.err
	}
	r.known, r.err = read(preferred)
	r.preferred, r.from, r.due = string(preferred), from, now.Add(readAfter)
	switch {
	case r.err != nil:
		r.due = now.Add(retryAfter)
	case from == [2]netip.Addr{}:
		r.due = now // no change would be seen
	}
	return r.known, r.err
}

// sourceAddresses returns the addresses that packets to elsewhere would come from, by IPv4 and
// IPv6; the zero address where there is no route. No packet is sent: the destinations are those
// that RFC 5737 and RFC 3849 keep for documentation.
func sourceAddresses() (sources [2]netip.Addr) {
	for i, elsewhere := range [2]string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(elsewhere)))
		if err != nil {
			continue
		}
		if local, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			sources[i] = local.AddrPort().Addr()
		}
		_ = conn.Close()
	}
	return sources
}

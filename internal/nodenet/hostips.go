package nodenet

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	maxAge     = 10 * time.Second // kubelet: nodeStatusUpdateFrequency, its period of looks
	unknownAge = time.Second      // the first while there is no address; the next ones double, up to maxAge
)

// HostIPs returns the function that has the addresses of the node: get, or one that returns the given
// addresses, or [DetectIPs] if there are none of either.
func HostIPs(get func() []string, given []string) func() []string {
	switch {
	case get != nil:
		return get
	case len(given) > 0:
		given = slices.Clone(given)
		return func() []string { return given }
	default:
		return DetectIPs(nil)
	}
}

// DetectIPs returns a function that returns the address on the interface of the default route, as
// [CachedIPs]. preferred is an address of the preferred family; nil means IPv4.
func DetectIPs(preferred net.IP) func() []string {
	var route Route
	return CachedIPs(func() ([]string, error) {
		ip, err := route.Address(preferred)
		if err != nil {
			return nil, err
		}
		return []string{ip.String()}, nil
	})
}

// CachedIPs returns a function that returns the addresses that find has found, without those of
// the loopback interface. It calls find again when the result is 10 s old. While there is no
// address, as on a machine that boots, it calls find again after 1 s, 2 s, 4 s, 8 s, and then every
// 10 s. While find fails or finds none, the last addresses are kept. The function is safe for
// concurrent use. The slice that it returns must not be changed.
func CachedIPs(find func() ([]string, error)) func() []string {
	var (
		mu    sync.Mutex
		known []string
		due   time.Time
		pause = unknownAge
	)
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Before(due) {
			return known
		}
		if found, err := find(); err == nil {
			found = slices.DeleteFunc(found, isLoopback)
			if len(found) > 0 && !slices.Equal(found, known) {
				known = found
			}
		}
		due = now.Add(maxAge)
		if len(known) == 0 {
			due = now.Add(pause)
			pause = min(2*pause, maxAge)
		}
		return known
	}
}

func isLoopback(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	return err == nil && addr.Unmap().IsLoopback()
}

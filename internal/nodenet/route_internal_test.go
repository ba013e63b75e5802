package nodenet

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The routes are read when something has changed, and now and then.
func TestRoutesAreReadWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			from  netip.Addr
			err   error
			reads int
		)
		address := net.IPv4(192, 0, 2, 7)
		r := &Route{
			read:   func(net.IP) (net.IP, error) { reads++; return address, err },
			source: func(net.IP) netip.Addr { return from },
		}
		get := func(preferred net.IP) string {
			ip, err := r.Address(preferred)
			if err != nil {
				return err.Error()
			}
			return ip.String()
		}
		get(nil)
		assert.Equal(t, "192.0.2.7", get(nil))
		assert.Equal(t, 2, reads, "without a source address nothing is known of a change")

		from = netip.MustParseAddr("192.0.2.7")
		for range 29 {
			assert.Equal(t, "192.0.2.7", get(nil))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, 3, reads)
		time.Sleep(10 * time.Second)
		get(nil)
		assert.Equal(t, 4, reads, "after 5 minutes")

		from = netip.MustParseAddr("2001:db8::7")
		get(nil)
		get(nil)
		assert.Equal(t, 5, reads, "another address")
		get(net.IPv6zero)
		assert.Equal(t, 6, reads, "another family is asked for")

		from, err = netip.Addr{}, errors.New("no default routes")
		assert.Equal(t, "no default routes", get(nil))
		for range 5 {
			assert.Equal(t, "no default routes", get(nil))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, 7, reads, "a route that comes gives a source address")
		from = netip.MustParseAddr("192.0.2.7")
		assert.Equal(t, "no default routes", get(nil))
		assert.Equal(t, "no default routes", get(nil))
		assert.Equal(t, 8, reads)
		time.Sleep(10 * time.Second)
		err = nil
		assert.Equal(t, "192.0.2.7", get(nil), "a read that failed is repeated soon")
		assert.Equal(t, 9, reads)
	})
}

// The real routes give what apimachinery finds, again and again.
func TestRouteOfThisMachine(t *testing.T) {
	var r Route
	first, firstErr := r.Address(nil)
	second, secondErr := r.Address(nil)
	assert.Equal(t, first, second)
	assert.Equal(t, firstErr, secondErr)
}

// BenchmarkRoute compares a look that finds no change with a read of the routes.
func BenchmarkRoute(b *testing.B) {
	var r Route
	if _, err := r.Address(nil); err != nil {
		b.Skip(err)
	}
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			_, _ = r.Address(nil)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			_, _ = new(Route).Address(nil)
		}
	})
}

package nodenet_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// A machine that boots has no route at first, may have only the loopback interface, and its
// address may change later.
func TestAddressesAreFoundWhenTheyAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			found []string
			err   = errors.New("no default routes")
			looks int
		)
		get := nodenet.CachedIPs(func() ([]string, error) {
			looks++
			return append([]string(nil), found...), err
		})
		for range 100 {
			assert.Empty(t, get())
		}
		assert.Equal(t, 1, looks, "100 uses are one look")

		found, err = []string{"127.0.0.1", "::1"}, nil
		time.Sleep(time.Second)
		assert.Empty(t, get(), "nobody else can reach a loopback address")
		found = []string{"192.0.2.1"}
		time.Sleep(time.Second)
		assert.Empty(t, get(), "the second look is 2 s after the first")
		time.Sleep(time.Second)
		assert.Equal(t, []string{"192.0.2.1"}, get())
		assert.Equal(t, 3, looks)

		found = []string{"192.0.2.2"}
		time.Sleep(9 * time.Second)
		assert.Equal(t, []string{"192.0.2.1"}, get())
		assert.Equal(t, 3, looks, "a known address is looked for every 10 s")
		time.Sleep(time.Second)
		assert.Equal(t, []string{"192.0.2.2"}, get())

		err = errors.New("no default routes")
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"192.0.2.2"}, get(), "the last one stays while the link is down")
	})
}

// A machine without a default route is looked at as rarely as another one after a while.
func TestLooksForAddressesBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		get := nodenet.CachedIPs(func() ([]string, error) { looks++; return nil, errors.New("no default routes") })
		for range 65 {
			get()
			time.Sleep(time.Second)
		}
		assert.Equal(t, 9, looks, "after 1, 2, 4, 8 and 10 s")
	})
}

// A function of the embedder comes before addresses that are given once.
func TestWhichAddresses(t *testing.T) {
	get := func() []string { return []string{"192.0.2.1"} }
	given := []string{"192.0.2.2"}
	assert.Equal(t, []string{"192.0.2.1"}, nodenet.HostIPs(get, given)())
	of := nodenet.HostIPs(nil, given)
	given[0] = "192.0.2.3"
	assert.Equal(t, []string{"192.0.2.2"}, of(), "the addresses are copied")
}

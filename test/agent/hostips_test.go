package agent_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// An agent that starts while the machine boots has no address at first. Pods get the address
// when there is one, and another one when it changes, with their next sync at the latest.
func TestTheAddressOfTheHostIsTheOneOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[[]string]
		now.Store(new([]string))
		set := func(ips ...string) { now.Store(&ips) }
		n := startNodeWith(t, t.TempDir(), fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Host.IPs, o.HostIPs = []string{"192.0.2.99"}, func() []string { return *now.Load() }
		})
		defer n.stop(t)
		host := makePod("host")
		host.Spec.HostNetwork = true
		n.source.Set(host, makePod("web"))
		check := func(after time.Duration, want ...string) {
			t.Helper()
			pods := n.after(after)
			require.Len(t, pods, 2)
			for name, pod := range pods {
				var hosts, own []string
				for _, ip := range pod.Status.HostIPs {
					hosts = append(hosts, ip.IP)
				}
				for _, ip := range pod.Status.PodIPs {
					own = append(own, ip.IP)
				}
				assert.Equal(t, v1.PodRunning, pod.Status.Phase, name)
				assert.Equal(t, want, hosts, name)
				if name == "host" {
					assert.Equal(t, want, own, "the addresses of a pod on the host's network")
				}
			}
		}
		check(10 * time.Second)
		set("192.0.2.1")
		check(5*time.Minute, "192.0.2.1")
		set("192.0.2.2", "2001:db8::2")
		require.NoError(t, n.Sync("uid-host"))
		require.NoError(t, n.Sync("uid-web"))
		check(time.Second, "192.0.2.2", "2001:db8::2")
	})
}

package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/node"
)

// addresses are the addresses that the node reports.
type addresses struct {
	atomic.Pointer[[]v1.NodeAddress]
}

func (a *addresses) NodeAddresses(context.Context) ([]v1.NodeAddress, error) { return *a.Load(), nil }

func (a *addresses) set(list ...v1.NodeAddress) { a.Store(&list) }

func internal(ip string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip} }
func external(ip string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip} }

// The pods have the addresses of the node object, whatever the machine has found, and have
// others as soon as the node object has.
func TestPodsHaveTheAddressesOfTheNodeObject(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		r.api.Remove("nodes", "", "node") // it has the addresses of the agent before
		var of addresses
		of.set()
		r.change = func(c *Config, opts *kubeletkit.Options) {
			c.Node.Addresses = &of
			opts.Host.IPs = nil // there is no route at first
			opts.HostIPs = func() []string { return nil }
		}
		r.start()
		host := bound("host")
		host.Spec.HostNetwork = true
		r.api.Create(host)
		status := func() (s v1.PodStatus) {
			pod := r.api.Get("default", "host")
			require.NotNil(t, pod)
			return pod.Status
		}
		r.after(time.Minute)
		assert.Equal(t, v1.PodRunning, status().Phase)
		assert.Empty(t, status().HostIP, "it is not known")
		assert.Empty(t, status().PodIP)

		for _, step := range []struct {
			addresses []v1.NodeAddress
			want      []string
		}{
			{[]v1.NodeAddress{internal("192.0.2.1")}, []string{"192.0.2.1"}},
			{[]v1.NodeAddress{external("203.0.113.1"), internal("192.0.2.2"), internal("192.0.2.3")}, []string{"192.0.2.2"}},
			{[]v1.NodeAddress{internal("2001:db8::1"), internal("192.0.2.2")}, []string{"2001:db8::1", "192.0.2.2"}},
			{[]v1.NodeAddress{external("203.0.113.1")}, []string{"203.0.113.1"}},
		} {
			of.set(step.addresses...)
			r.node.node.Update()
			r.after(15 * time.Second) // statuses that are not urgent wait for up to 10 s
			var ips []v1.HostIP
			var own []v1.PodIP
			for _, ip := range step.want {
				ips, own = append(ips, v1.HostIP{IP: ip}), append(own, v1.PodIP{IP: ip})
			}
			now := status()
			assert.Equal(t, ips, now.HostIPs)
			assert.Equal(t, own, now.PodIPs)
			assert.Equal(t, step.want[0], now.HostIP)
		}
	})
}

func TestHostIPs(t *testing.T) {
	local := []string{"192.0.2.1"}
	h := &hostIPs{local: func() []string { return local }}
	assert.Equal(t, []string{"192.0.2.1"}, h.get(), "there is no node object")
	assert.False(t, h.update(nil), "it has no address yet")
	local = []string{"192.0.2.2"}
	assert.Equal(t, []string{"192.0.2.2"}, h.get())
	assert.False(t, h.update([]string{"192.0.2.2"}), "nothing has changed for pods")
	assert.True(t, h.update([]string{"192.0.2.3"}))
	assert.False(t, h.update([]string{"192.0.2.3"}))
	assert.Equal(t, []string{"192.0.2.3"}, h.get(), "the node object wins")
}

// Before there is a node object, the pods have the addresses that it will get, and none if the
// cloud provider has them.
func TestAddressesBeforeThereIsANodeObject(t *testing.T) {
	opts := &kubeletkit.Options{HostIPs: func() []string { return []string{"192.0.2.1"} }}
	name := &node.HostAddresses{Hostname: "198.51.100.1"}
	assert.Equal(t, []string{"198.51.100.1"}, localIPs(opts, name)(), "the name of the node is an address")
	assert.Equal(t, []string{"192.0.2.1"}, localIPs(opts, facts{})(), "no other source can be asked")
	assert.Empty(t, localIPs(opts, &node.HostAddresses{Hostname: "n", WaitForProvider: true})())
}

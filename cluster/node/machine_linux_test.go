package node

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// fakeRoot writes files below a directory.
func fakeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func TestMachine(t *testing.T) {
	root := fakeRoot(t, map[string]string{
		"/etc/machine-id":                                              "abc\n",
		"/sys/class/dmi/id/product_uuid":                               "uuid\n",
		"/proc/sys/kernel/random/boot_id":                              "boot\n",
		"/proc/sys/kernel/osrelease":                                   "6.1.0\n",
		"/etc/os-release":                                              "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n",
		"/proc/meminfo":                                                "MemTotal:       1024 kB\nSwapTotal:        2048 kB\nHugePages_Total:       0\n",
		"/sys/devices/system/cpu/online":                               "0-2,5\n",
		"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":       "3\n",
		"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":    "0\n",
		"/sys/kernel/mm/hugepages/something/nr_hugepages":              "1\n",
		"/sys/kernel/mm/hugepages/hugepages-4096kB/nr_overcommit_only": "1\n",
	})
	m := NewMachine(MachineOptions{StorageDir: filepath.Join(root, "not", "yet"), PodsPerCore: 10, root: root})
	info, err := m.NodeInfo(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "abc", info.MachineID)
	assert.Equal(t, "uuid", info.SystemUUID)
	assert.Equal(t, "boot", info.BootID)
	assert.Equal(t, "6.1.0", info.KernelVersion)
	assert.Equal(t, "Debian GNU/Linux 13", info.OSImage)
	assert.Equal(t, int64(2048<<10), *info.Swap.Capacity)
	capacity, _, err := m.NodeResources(t.Context())
	require.NoError(t, err)
	text := map[v1.ResourceName]string{}
	for name, q := range capacity {
		text[name] = q.String()
	}
	assert.NotEmpty(t, text[v1.ResourceEphemeralStorage])
	delete(text, v1.ResourceEphemeralStorage)
	assert.Equal(t, map[v1.ResourceName]string{"cpu": "4", "memory": "1Mi", "pods": "40", "hugepages-2Mi": "6Mi",
		"hugepages-1Gi": "0"}, text)
}

// A node in a user namespace has that in its object; without the option, nothing is known of it.
func TestInUserNamespace(t *testing.T) {
	for content, want := range map[string]bool{"0 0 4294967295\n": false, "0 4242 1\n1 100000 65535\n": true} {
		opts := MachineOptions{UserNamespace: true, root: fakeRoot(t, map[string]string{"/proc/self/uid_map": content})}
		info, err := NewMachine(opts).NodeInfo(t.Context())
		require.NoError(t, err)
		assert.Equal(t, new(want), info.RunningInUserNamespace)
		opts.UserNamespace = false
		info, err = NewMachine(opts).NodeInfo(t.Context())
		require.NoError(t, err)
		assert.Nil(t, info.RunningInUserNamespace)
	}
}

// A machine that shows little, as some containers, is a machine.
func TestBareMachine(t *testing.T) {
	m := NewMachine(MachineOptions{root: t.TempDir()})
	info, err := m.NodeInfo(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "Linux", info.OSImage)
	assert.Nil(t, info.Swap)
	capacity, _, err := m.NodeResources(t.Context())
	require.ErrorContains(t, err, "meminfo")
	assert.Positive(t, capacity.Cpu().Value())
	assert.Equal(t, int64(110), capacity.Pods().Value())
	for _, online := range []string{"x", "0-", "3-1", "0-99999999999", "0-9999999"} {
		root := fakeRoot(t, map[string]string{"/sys/devices/system/cpu/online": online})
		assert.Equal(t, coreCount(t.TempDir()), coreCount(root), online)
	}
}

// As with kubelet, a node with cgroup v1 has a warning after its start.
func TestCgroupV1(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		want []string
	}{
		"v1":     {"/sys/fs/cgroup/memory/tasks", []string{"Normal Starting", "Warning CgroupV1"}},
		"hybrid": {"/sys/fs/cgroup/unified/cgroup.controllers", []string{"Normal Starting", "Warning CgroupV1"}},
		"v2":     {"/sys/fs/cgroup/cgroup.controllers", []string{"Normal Starting"}},
		"none":   {"/etc/machine-id", []string{"Normal Starting"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := fakeRoot(t, map[string]string{tc.file: "x\n"})
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.opts.Info, s.opts.Resources = NewMachine(MachineOptions{root: root}), []Resources{s.machine}
				s.setDown(true) // there are no events of the status
				s.start()
				synctest.Wait()
				assert.Equal(t, tc.want, s.takeEvents())
				require.NoError(t, s.stop())
			})
		})
	}
}

func TestRealMachine(t *testing.T) {
	m := NewMachine(MachineOptions{StorageDir: t.TempDir()})
	info, err := m.NodeInfo(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, info.BootID)
	assert.NotEmpty(t, info.KernelVersion)
	capacity, _, err := m.NodeResources(t.Context())
	require.NoError(t, err)
	require.NoError(t, missingCapacity(capacity, true))
}

func TestHostAddresses(t *testing.T) {
	ip := net.ParseIP
	hosts := filepath.Join(fakeRoot(t, map[string]string{"hosts": "127.0.1.1 n\n192.0.2.9 other n.example N # " +
		"comment\n2001:db8::9 n\n192.0.2.77 gone\nbad n\n"}), "hosts")
	for name, tc := range map[string]struct {
		h    *HostAddresses
		want []string // internal addresses
		err  string
	}{
		"given":                         {h: &HostAddresses{IPs: []net.IP{ip("192.0.2.1")}}, want: []string{"192.0.2.1"}},
		"two families":                  {h: &HostAddresses{IPs: []net.IP{ip("192.0.2.1"), ip("2001:db8::9")}}, want: []string{"192.0.2.1", "2001:db8::9"}},
		"not of this machine":           {h: &HostAddresses{IPs: []net.IP{ip("192.0.2.200")}}, err: "no interface of this machine has it"},
		"loopback":                      {h: &HostAddresses{IPs: []net.IP{ip("127.0.0.1")}}, err: "loopback"},
		"link-local":                    {h: &HostAddresses{IPs: []net.IP{ip("fe80::1")}}, err: "link-local"},
		"multicast":                     {h: &HostAddresses{IPs: []net.IP{ip("224.0.0.251")}}, err: "multicast"},
		"from /etc/hosts":               {h: &HostAddresses{}, want: []string{"192.0.2.9"}},
		"from /etc/hosts, IPv6":         {h: &HostAddresses{IPs: []net.IP{ip("::")}}, want: []string{"2001:db8::9"}},
		"of the default route":          {h: &HostAddresses{Hostname: "unknown"}, want: []string{"192.0.2.1"}},
		"an address in /etc/hosts only": {h: &HostAddresses{Hostname: "gone"}, want: []string{"192.0.2.1"}},
		"a name that is an address":     {h: &HostAddresses{Hostname: "198.51.100.1"}, want: []string{"198.51.100.1"}},
		"no route":                      {h: &HostAddresses{Hostname: "unknown", defaultRoute: func(net.IP) (net.IP, error) { return nil, errors.New("no default routes") }}, err: "--node-ip"},
		"the provider's":                {h: &HostAddresses{WaitForProvider: true}},
	} {
		t.Run(name, func(t *testing.T) {
			h := tc.h
			if h.Hostname == "" {
				h.Hostname = "n"
			}
			h.hostsFile = hosts
			h.interfaceAddrs = func() (addrs []net.Addr, _ error) {
				for _, own := range []string{"127.0.0.1", "127.0.1.1", "192.0.2.1", "192.0.2.9", "2001:db8::9",
					"fe80::1", "224.0.0.251"} {
					addrs = append(addrs, &net.IPNet{IP: ip(own)})
				}
				return addrs, nil
			}
			if h.defaultRoute == nil {
				h.defaultRoute = func(net.IP) (net.IP, error) { return ip("192.0.2.1"), nil }
			}
			got, err := h.NodeAddresses(t.Context())
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			var internal []string
			for _, a := range got[:len(got)-1] {
				assert.Equal(t, v1.NodeInternalIP, a.Type)
				internal = append(internal, a.Address)
			}
			assert.Equal(t, tc.want, internal)
			assert.Equal(t, v1.NodeAddress{Type: v1.NodeHostName, Address: h.Hostname}, got[len(got)-1])
		})
	}
}

func TestImageListIsReadOnlyWhenItMayHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists int
		var fail error
		l := &ImageList{max: 50, stale: true, list: func(context.Context) ([]runtime.Image, error) {
			lists++
			return []runtime.Image{{ID: "a", Tags: []string{"a:1"}, Size: 1}}, fail
		}}
		for range 3 {
			got, err := l.NodeImages(t.Context())
			require.NoError(t, err)
			assert.Len(t, got, 1)
		}
		assert.Equal(t, 1, lists)
		l.Changed()
		fail = errors.New("down")
		_, err := l.NodeImages(t.Context())
		require.ErrorIs(t, err, fail)
		fail = nil
		_, err = l.NodeImages(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, lists, "a list that failed is repeated")
		time.Sleep(imagesPeriod)
		_, err = l.NodeImages(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 4, lists)
	})
}

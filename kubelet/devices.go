package kubelet

import (
	"maps"
	"os"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/plugin"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/server"
)

// nodeDevices gives pods the devices of device plugins. It is nil without a directory for them, and with the embedded
// runtime, which has no devices.
type nodeDevices struct {
	*devices.Manager
	plugins *pluginServer
	dir     *pluginsDir
}

func newDevices(s *config.Settings, log logr.Logger) (d *nodeDevices, err error) {
	if s.Embedded || s.DevicePluginsDir == "" {
		return nil, nil
	}
	d = &nodeDevices{dir: &pluginsDir{path: s.DevicePluginsDir, earlier: s.EarlierDevicePluginsDir,
		rootDir: s.RootDir, log: log}}
	nodes, err := nodesOf(s)
	if err != nil {
		return nil, err
	}
	d.Manager, err = devices.New(d.dir.checkpoint(),
		devices.Options{FailWithoutProvider: s.FailWithoutDevicePlugin, Nodes: nodes, Lock: d.dir.lock})
	if err != nil {
		return nil, err
	}
	server, err := plugin.New(s.DevicePluginsDir, d.Manager)
	d.plugins = &pluginServer{Server: server, dir: d.dir, log: log}
	return d, err
}

// close unlocks the directory of the plugins.
func (d *nodeDevices) close() error {
	if d != nil {
		d.dir.unlock()
	}
	return nil
}

// nodesOf returns the memory nodes of the machine, if the settings place containers on them.
func nodesOf(s *config.Settings) (nodes numa.Nodes, err error) {
	if s.TopologyManagerPolicy == topology.PolicyNone {
		return 0, nil
	}
	machine, err := numa.Read(os.DirFS("/"))
	for _, n := range machine.Nodes {
		nodes |= numa.Of(n.ID)
	}
	return nodes, err
}

// join adds the devices to the options of the agent.
func (d *nodeDevices) join(opts *kubeletkit.Options) {
	if d != nil {
		opts.Join = append(opts.Join, d.Manager, d.plugins)
	}
}

// healthChecks returns kubelet's check of device plugins.
func (d *nodeDevices) healthChecks() []server.HealthCheck {
	if d == nil {
		return nil
	}
	return []server.HealthCheck{{Name: "device-plugin", Run: d.plugins.Healthy}}
}

// held returns what the API of pod resources reports.
func (d *nodeDevices) held() (out []podresources.Source) {
	if d == nil {
		return nil
	}
	return append(out, podresources.Source{
		Of: func(pod *v1.Pod, container *v1.Container) (r podresources.Resources) {
			for _, a := range d.Devices(pod.UID) {
				if a.Container == container.Name {
					r.Devices = append(r.Devices, byNodes(a)...)
				}
			}
			return r
		},
		Allocatable: func() (r podresources.Resources) {
			for _, a := range d.Allocatable() {
				r.Devices = append(r.Devices, byNodes(a)...)
			}
			return r
		},
	})
}

// byNodes groups devices by their memory nodes.
func byNodes(a devices.Allocation) (out []podresources.Devices) {
	groups := map[numa.Nodes][]string{}
	for _, device := range a.Devices {
		groups[device.Nodes] = append(groups[device.Nodes], device.ID)
	}
	for _, nodes := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, podresources.Devices{Resource: a.Resource, IDs: groups[nodes], Nodes: nodes})
	}
	return out
}

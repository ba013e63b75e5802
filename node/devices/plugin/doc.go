// Package plugin serves device plugins: programs of vendors that have devices of a node and talk Kubernetes'
// deviceplugin/v1beta1 over gRPC.
//
// # Vocabulary
//
//   - A plugin is a process with a socket of its own. It has the devices of one resource.
//   - Registration is the service at the socket kubelet.sock, at which a plugin announces its socket.
//
// # Walk through
//
// A [Server] is given the manager of devices, and runs as a component of the agent:
//
//	manager, err := devices.New(filepath.Join(dir, devices.CheckpointName), devices.Options{…})
//	server, err := plugin.New(dir, manager)
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{manager, server}, …})
//
// The directory is the one that plugins expect, /var/lib/kubelet/device-plugins. When the server starts, it removes all
// sockets in the directory, as kubelet does: plugins watch for it, and register again.
//
// A plugin that registers is a [Plugin], which is a devices.Provider: [Connect] asks it for its options, and the
// manager serves it until its stream of devices ends. A plugin that registers at the directory of the plugin manager
// (pluginregistration/v1, type DevicePlugin) is served as well: a Server is a handler of package node/plugins.
//
// # Guarantees
//
// A plugin that hangs at a call holds the pods that wait for the answer, and its own registration. A plugin that dies
// has no allocatable devices until it registers again.
//
// Of several plugins of a resource at different sockets, as while a DaemonSet is updated, the last one that has
// delivered its devices is served. When it ends, the one before it is served again. A plugin that registers again at
// the same socket replaces itself.
//
// Messages of plugins are limited to gRPC's 4 MiB, as with kubelet, some 10⁵ devices: a longer list ends the plugin's
// stream, which is logged.
package plugin

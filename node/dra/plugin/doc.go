// Package plugin has the DRA drivers that are plugins of the node: it is the handler of [plugins.TypeDRA] for package
// node/plugins, and adds each plugin to a [dra.Manager]. It calls the gRPC services v1.DRAPlugin and v1beta1.DRAPlugin,
// and follows the health of devices by v1alpha1.DRAResourceHealth or v1.DRAResourceHealth if the plugin serves it
// (KEP-4680).
//
//	drivers, err := plugin.New(manager)
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{manager, drivers}, …})
//	…
//	registry, err := plugins.New(dir, map[string]plugins.Handler{plugins.TypeDRA: drivers}, plugins.Options{})
//	…
//	err = agent.Add("plugins", registry.Run)
//
// # Guarantees
//
// The services that a plugin serves are its versions: the first one of the list that is known here is used, as in
// kubelet. A driver may have several plugins at different endpoints, for updates without interruption; a second plugin
// at the same endpoint is refused.
//
// The connection to a plugin is kept while the manager runs, and made again when it is lost. A plugin costs one
// goroutine, one for its health, and those of its connection. Without a plugin there is none. The manager waits for the
// first two when it stops.
package plugin

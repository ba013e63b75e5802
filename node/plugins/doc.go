// Package plugins registers plugins of the node that serve a socket in a directory, as kubelet's plugin manager does.
//
// # Vocabulary
//
//   - The registry is the directory in which plugins create their sockets. That of kubelet is
//     /var/lib/kubelet/plugins_registry.
//   - A plugin serves the service pluginregistration.Registration at a socket in the registry, or in a directory below
//     it. It has a type, such as "DRAPlugin", and a name.
//   - A [Handler] uses the plugins of one type. An embedder gives the [Manager] a handler for each type, also for types
//     of its own.
//   - The endpoint of a plugin is the socket at which it serves its real work. It is that of the registration if the
//     plugin names none.
//
// # Walk through
//
// The [Manager] watches the registry. For each new socket it asks the plugin for its type, name, endpoint and versions,
// calls Validate and then Register of the handler of that type, and notifies the plugin of the result. When the socket
// is removed, it calls Deregister. A socket that is created again at the same path is a plugin that was restarted:
// Deregister, then Register.
//
//	manager, err := plugins.New("/var/lib/kubelet/plugins_registry", map[string]plugins.Handler{plugins.TypeDRA: drivers}, plugins.Options{})
//	…
//	opts.Join = append(opts.Join, manager) // of the agent
//
// # Guarantees
//
// Each Register that succeeds is followed by at most one Deregister with the same [Plugin], and calls for one socket
// never overlap. Calls for different sockets run concurrently: a plugin that hangs holds up nothing but itself.
//
// A registration that fails is repeated with a back-off from 0.5 s to 2 min, as in kubelet, until the socket is
// removed. A panic of a handler is an error. After five repetitions the back-off is 100 ms for each socket, if that is
// longer, so that there are ten a second at most. At most 100 registrations are under way at a time.
//
// A failure of a socket is logged once: that nobody answers at it, and that its plugin is refused. Many failures at a
// time are one line. A file that is no socket, and a name that begins with a dot, are ignored.
//
// Without a plugin there are three goroutines: Run waits for changes, which one merges that another receives from the
// kernel. A plugin that is registered has no goroutine and no connection here. If the kernel reports no changes, the
// registry is read every 10 s.
//
// When Run returns, no plugin is deregistered and Deregister is not called: an agent that is restarted finds the
// plugins where they are, and a handler ends what it keeps of them with the agent.
package plugins

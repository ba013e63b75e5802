// Package node keeps the node object of an agent: it registers the node, reports its status
// and renews its lease, as kubelet does.
//
//	n, err := node.New(client, "edge-7", node.Options{
//		Runtime:     rt.Features,
//		ReadyChecks: []func() error{runtimeReady, pleg.Healthy},
//	})
//	...
//	err = n.Run(ctx) // blocks
//
// # Vocabulary
//
//   - node object: the object of kind Node with the name of the node.
//   - lease: the object of kind Lease with that name in the namespace kube-node-lease. If a
//     lease is not renewed, the controllers consider the node to have failed.
//   - report: a patch of the status of the node object, and of the few labels and annotations
//     that kubelet owns.
//   - identity: the machine of an agent and [Options].Instance. Two agents have different
//     identities.
//
// # Sources of the status
//
// Each part of the status comes from a small interface, so that embedders can add to it:
// [Resources], [Images], [Info] and [Addresses], and the functions in Options.Conditions. The defaults read the machine
// ([Machine], [HostAddresses]); the runtime and the checks of readiness are functions. All
// of them except Images are called from one goroutine, each time the status is computed.
// They return their present values and must not block.
//
// # Guarantees
//
//   - Registration: the node object is created with its full status. A node that exists is
//     adopted: its default labels and the annotation of attach-detach are repaired, its status
//     is replaced, extended resources without a source become 0, and everything else is left as
//     it is: taints, other labels, spec, volumes, conditions of others.
//   - The status is computed every [Options].UpdateFrequency, at once after [Node.Update],
//     every 100 ms until the node is ready for the first time (for a minute at most), and
//     within a second after the result of a check of readiness has changed, or another client
//     has changed the node object. It is written if it has changed, and otherwise after
//     [Options].ReportFrequency. Heartbeats alone are no change.
//   - Volumes in use are reported in order, each once, and a new one within a second after
//     [Node.Update]. Volumes that a controller attaches are in [Node.Current], and are delivered by
//     [Node.OnChange] as soon as the watch has them.
//   - A report patches only what changed. A condition keeps its transition time while its
//     status stays the same.
//   - The lease is renewed every quarter of [Options].LeaseDuration. Its owner is the node
//     object, and its holder is the name of the node, as with kubelet.
//   - No call except the watch lasts longer than 10 seconds. Failed calls are repeated with
//     back-off until they succeed. The back-off of renewals of the lease is 3 seconds at most.
//     That of reports is 15 seconds at most with the client of package cluster, which ends it
//     when the API server answers again.
//   - If another client deletes the node object, it is not created again, and the lease is
//     not renewed any more: an administrator removes a node from a cluster in this way. A
//     restart of the agent registers the node again. If another client creates the node object,
//     it is used. kubelet does the same.
//
// # Two agents with one name
//
// An annotation of the lease has the identity of the agent that renews it. An agent that
// starts and finds the lease of another agent, not expired, waits until it expires. If it is
// renewed, [Node.Run] returns an error that wraps [ErrNodeInUse]. It also does so if the agent
// loses the lease to another one later, which can happen only if their clocks differ by more than
// the duration of the lease. An agent that is restarted finds its own identity and does not wait.
// A lease without the annotation belongs to a kubelet. It is taken over at once if the node
// object shows the same machine.
package node

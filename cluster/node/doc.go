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
//   - lease: the object of kind Lease with that name in the namespace kube-node-lease. The
//     controllers take a node whose lease is not renewed for a node that has failed.
//   - report: a patch of the status of the node object, and of the few labels and annotations
//     that kubelet owns.
//   - identity: what tells the agent from others: its machine and [Options].Instance.
//
// # Sources of the status
//
// Each part of the status comes from a small interface, so that others can add to it:
// [Conditions], [Resources], [Images], [Info] and [Addresses]. The defaults read the machine
// ([Machine], [HostAddresses]); the runtime and the checks of readiness are functions. All
// of them but Images are called from one goroutine, each time the status is computed: they
// return what they know, and do not wait for anything.
//
// # Guarantees
//
//   - Registration: the node object is created with its full status. A node that exists is
//     adopted: its default labels and the annotation of attach-detach are repaired, its status
//     is replaced, and everything else is left as it is: taints, other labels, spec, volumes,
//     conditions of others.
//   - The status is computed every [Options].UpdateFrequency, at once after [Node.Update],
//     every 100 ms until the node is ready for the first time (for a minute at most), and
//     within a second after the checks of readiness have another result, or somebody has
//     changed the node object. It is written if it
//     changed, and otherwise after [Options].ReportFrequency. Heartbeats alone are no change.
//   - A report patches only what changed. A condition keeps its transition time while its
//     status stays the same.
//   - The lease is renewed every quarter of [Options].LeaseDuration. Its owner is the node
//     object, and its holder is the name of the node, as with kubelet.
//   - No call lasts longer than 10 seconds, but the watch. Failed calls are repeated with
//     back-off, for as long as it takes: renewals of the lease up to 3 seconds, reports up to 15
//     if the client is that of package cluster, which ends their back-off with an outage.
//   - If somebody deletes the node object, it is not created again, and the lease is not
//     renewed any more: that is how an administrator removes a node from a cluster. A restart
//     of the agent registers the node again. A node object that somebody else creates is used.
//     kubelet does the same.
//
// # Two agents with one name
//
// An annotation of the lease has the identity of the agent that renews it. An agent that
// starts and finds the lease of another agent, not expired, waits until it expires. If it is
// renewed, [Node.Run] returns an error that wraps [ErrNodeInUse]. So does an agent that loses
// the lease to another one later, which needs clocks that differ by more than the duration of
// the lease. An agent that is restarted finds its own identity and does not wait. A lease
// without the annotation is that of a kubelet; it is taken over at once if the node object
// shows the same machine.
package node

// Package podsource delivers the pods that an API server has bound to a node.
//
// # Vocabulary
//
//   - A [Source] lists and watches the pods with spec.nodeName=<node>. It is a
//     podconfig.Source of the name "api".
//   - A complete list has all pods of the node at one moment. An incomplete one, such as a
//     response that ends early, is an error and changes nothing.
//   - A [Change] is a difference between two states of the pods. An observer receives all
//     changes, also those of mirror pods.
//
// # Use
//
//	src, err := podsource.New(client, "edge-7", podsource.Options{Registered: node.Registered})
//	opts.Sources = append(opts.Sources, src) // the agent runs it
//
// # Guarantees
//
//   - The first delivery is a snapshot, after a complete list. Later lists are snapshots,
//     and events of the watch are deltas, so the cost of a change does not depend on the
//     number of pods.
//   - While the server cannot be reached, nothing is delivered and no pod is removed. The
//     request is repeated every 2.5 to 4 seconds. Then the watch continues where it ended. If
//     the server does not have that state any more (410 Gone), there is a new list.
//   - An object that is older than the one that is held is ignored, and so is a repeated
//     one. Resource versions are compared where they are numbers (KEP-5504), otherwise the
//     generation and the deletion timestamp.
//   - A pod that was recreated under its name is removed and added in one delta.
//   - Pods are not delivered if they are mirror pods, or of another node.
//   - The order of each change is: first the lookups return it, then the observers receive it in
//     their order, then the sink. So an observer receives a pod before any part of the agent.
//   - A list has a deadline, and so has the beginning of a watch. A watch that is silent for
//     longer than the server promised is opened again. So a server that accepts connections
//     and does not answer delays the source, but never ends it.
//
// Pods are shared and must not be changed. Their managed fields are removed.
//
// # Differences from kubelet 1.37
//
//   - Kubelet delivers all pods for each event, here only the changed ones are.
//   - After failures kubelet waits up to 60 s before it lists again, here 4 s at most.
package podsource

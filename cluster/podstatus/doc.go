// Package podstatus writes to the API server: the statuses of the pods of a node, the deletion
// of pods that have ended, and the mirror pods of static pods.
//
// # Vocabulary
//
//   - The own status of a pod is the latest status that the status manager has delivered. The
//     agent owns some fields and conditions of a status. The others are foreign, and stay as
//     the API server has them. See status.Owned.
//   - The known object is the newest state of the API object that the sink has received: from
//     the watch of the node's pods, or in the answer to a call of its own.
//   - A mirror pod is the API server's copy of a static pod. Its status is that of the static
//     pod.
//   - A pod has ended when nothing of it can run any more and the agent has taken it down; see
//     Options.Ended.
//
// # Use
//
// A [Sink] is the status.Sink of an agent, and it observes a podsource.Source:
//
//	sink, err := podstatus.New(client, source, podstatus.Options{NodeName: "edge-7", Ended: ended, NodeUID: nodeUID})
//	opts.StatusSink = sink   // and sink.PodsChanged is an observer of the source
//
// It decides for one pod what to write now. The status manager orders the deliveries, repeats those that fail, and
// has the circuit breaker. The sink requests a delivery when the API object is not as it has left it, when the pod
// has finished, and when an outage ends. Only API objects whose pods have no status are deleted by WatchReceiver.
//
// # Guarantees
//
//   - The last own status of a pod reaches its API object, also if it could not be sent yet or if another
//     writer has overwritten it.
//   - A write is a strategic merge patch of the subresource status. It has the differences from
//     the known object. There is no read before it. Without a difference there is no call.
//   - Foreign conditions and fields stay, also those that are added between the last event of
//     the watch and the patch.
//   - A condition whose status is the same keeps its transition time, and a pod its start time.
//   - The UID is a precondition of each write and deletion. So a pod never has the status of a
//     predecessor of its name.
//   - A phase never goes back: Succeeded and Failed stay, and a Running pod does not become
//     Pending. If a static pod starts again, its mirror pod is created again.
//   - The statuses of different pods are written side by side. Each call has a deadline, and waits for the limit
//     of calls.
//   - An API object with a deletion timestamp is deleted, with grace period 0, once the pod has
//     ended and its final status was accepted, or refused as invalid five times, which takes 30 s.
//     It is deleted once: while finalizers keep it, there are no further calls.
//   - The status of a pod whose containers are being created waits a second for the next one. It
//     waits up to 10 seconds in a rush of pods, and if such a status of the pod was written before.
//   - The status of a deleted pod whose containers have all ended waits up to 250 ms for the final
//     one, which replaces it. So does any further status of a pod whose end is written already.
//   - While neither the agent nor another writer changes a pod, there is no call for it.
//
// # Answers of the API server
//
//	404, 410; 422 for the UID           the pod is gone: status.ErrGone
//	404, 409, 410 to a deletion         the pod is read: it is gone if there is none, or another UID has its name
//	400, 413, 422                       status.ErrRefused: logged as an error once, with the fields
//	403, 404, 409 to a mirror pod       status.ErrRefused; repeated also when the name becomes free
//	401, 403, 409, 429, 5xx, no answer  repeated with back-off; client-go obeys Retry-After within the deadline
//
// # Mirror pods
//
// A static pod has a mirror pod from its first status to its end. It has the annotation
// kubernetes.io/config.mirror with the hash of the static pod, and the node as its owner. It is
// created again if it is deleted, or if the hash differs; the static pod continues to run, as
// with kubelet. Mirror pods without a static pod are deleted; see Options.Orphaned.
//
// # Differences from kubelet 1.37
//
//   - Kubelet writes one status at a time and reads the pod before each write.
//   - Kubelet looks for overwritten statuses every 10 s, here the watch shows them at once.
//   - A static pod that was refused has a mirror pod, too. Its status has the reason.
//   - A mirror pod whose phase is final is replaced when its static pod runs again.
package podstatus

// Package podstatus writes what becomes of the pods of a node to the API server: their
// statuses, the deletion of pods that have ended, and mirror pods of static pods.
//
// # Vocabulary
//
//   - The own status of a pod is the one that the agent has generated, as the status manager
//     has delivered it last. It owns some fields and conditions of it; others are foreign, and
//     stay as the API server has them. See status.Owned.
//   - The known object is the newest state of the API object that the sink has seen: from the
//     watch of the node's pods, or in the answer to a call of its own.
//   - A mirror pod is the API server's copy of a static pod. Its status is that of the static
//     pod.
//   - A pod has ended when nothing of it can run any more and the agent has taken it down; see
//     Options.Ended.
//
// # Use
//
// A [Sink] is the status.Sink of an agent, a podsource.Observer, and a component that runs:
//
//	sink, err := podstatus.New(client, source, podstatus.Options{NodeName: "edge-7", Ended: ended, NodeUID: nodeUID})
//	opts.StatusSink = sink   // and sink.PodsChanged is an observer of the source
//	agent.Add(sink)          // Run
//
// # Guarantees
//
//   - The last own status of a pod reaches its API object. The status manager repeats what
//     fails; Run repeats the rest: what could not be sent yet, what another writer has
//     overwritten, deletions, and mirror pods. When a call succeeds after failures, all that
//     failed is repeated at once.
//   - A write is a strategic merge patch of the subresource status with what differs from the
//     known object. There is no read before it. No difference, no call.
//   - Foreign conditions and fields stay, also those that are added between the last event of
//     the watch and the patch.
//   - A condition whose status is the same keeps its transition time, and a pod its start time.
//   - The UID is a precondition of each write and deletion. So a pod never has the status of a
//     predecessor of its name.
//   - A phase never goes back: Succeeded and Failed stay, and a Running pod does not become
//     Pending. The mirror pod of a static pod that starts again is made anew.
//   - Calls for one pod do not overlap; those for different pods run side by side. Each call
//     has a deadline and takes its turn in the budget; changes of readiness, final phases and
//     deletions go first.
//   - An API object with a deletion timestamp is deleted, with grace period 0, once the pod has
//     ended and its final status was accepted, or refused as invalid five times, which takes 30 s.
//     It is deleted once: while finalizers keep it, there are no further calls.
//   - The status of a pod whose containers are being created waits a second for the next one, and
//     up to 10 seconds in a rush of pods, or if one of its statuses said that before.
//   - The status of a deleted pod whose containers have all ended waits up to 250 ms for the final
//     one, which replaces it.
//   - A pod that neither changes nor is changed costs no call.
//
// # Answers of the API server
//
//	404, 410; 422 for the UID           the pod is gone: status.ErrGone
//	409 to a deletion                   the pod is read: it is gone if another UID has its name
//	400, 413, 422                       logged as an error once, with the fields; repeated when the status changes, and after 2, 4, 8 s … 5 minutes
//	401, 403, 409, 429, 5xx, no answer  repeated with back-off; client-go obeys Retry-After within the deadline
//
// If calls for several pods fail and none succeeds, only one pod is tried, every 2 to 3 s, until a
// call succeeds: then all are. A status that is new is tried once nonetheless.
//
// # Mirror pods
//
// A static pod has a mirror pod from its first status to its end. It has the annotation
// kubernetes.io/config.mirror with the hash of the static pod, and the node as its owner. It is
// made anew if it is deleted, or if the hash differs; the static pod goes on running, as with
// kubelet. Mirror pods without a static pod are deleted; see Options.Orphaned.
//
// # Differences from kubelet 1.36
//
//   - Kubelet writes one status at a time and reads the pod before each write.
//   - Kubelet looks for overwritten statuses every 10 s, here the watch shows them at once.
//   - A static pod that was refused has a mirror pod, too, that says why.
//   - A mirror pod whose phase is final is replaced when its static pod runs again.
package podstatus

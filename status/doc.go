// Package status says what the world is told about a pod: it generates the API
// status from what the runtime reports, and keeps and delivers the latest one.
//
// # Vocabulary
//
//   - The previous status is the last one known for the same UID: what the
//     [Manager] keeps, or, after a start of the agent, what the API server has.
//   - A phase is final when it is Succeeded or Failed.
//   - A condition is owned when the agent alone writes it, and foreign when others
//     do, as those that readiness gates name.
//   - A [Sink] is where statuses go: an API server, a log, a message bus.
//
// # Core and shell
//
// [Generate] is a pure function: the same [Input] gives the same status. The
// [Manager] is the shell around it, and adds what only one who remembers can
// know. A pod's life in it is
//
//	s := status.Generate(status.Input{Pod: pod, Runtime: observed, Previous: prev, Now: now})
//	m.Set(pod, s)      // at each sync
//	m.Terminate(pod)   // once, when nothing of the pod is left to stop
//	m.Forget(pod.UID)  // when the pod is gone, or Prune for all that are
//
// # Guarantees
//
//   - A final phase stays, and a Running pod does not become Pending again.
//   - Restart counts, start time and observed generation never go down or away.
//   - A pod is not delivered as Succeeded or Failed while one of its containers
//     may run, so that whoever waits for that may use what it held.
//   - Of each pod the latest status is delivered; those in between may be passed
//     over. Deliveries of one pod follow each other, those of different pods run
//     side by side. A status that equals the last one is not delivered.
//   - A failed delivery is repeated with back-off until it succeeds, a newer
//     status takes its place, or the sink answers [ErrGone].
//
// # Differences from kubelet 1.36
//
//   - In kubelet a Running pod whose sandbox is made again can turn Pending.
//   - A container that the runtime lost track of counts as one restart when
//     its next instance runs, whatever the runtime's own count is by then.
//   - A sidecar that has exited with 0 and waits for its restart is Waiting.
//   - Without an API server the start time is the creation time of the oldest
//     sandbox or container known, so that it outlives the agent.
//   - recursiveReadOnly in volumeMounts is what the runtime reports of the mount.
//   - Not generated: resize conditions, resource claim statuses, device health
//     (allocatedResourcesStatus), image volume digests, and the restart of all
//     containers of a pod (KEP-5532).
package status

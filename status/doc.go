// Package status generates the API status of pods from what the runtime reports,
// keeps the latest status of each pod, and delivers it.
//
// # Vocabulary
//
//   - The previous status is the last known status of the same UID: the one that the
//     manager keeps or, after a restart of the agent, the one in the API server.
//   - A final phase is Succeeded or Failed.
//   - An owned condition is written by the agent only. All other conditions are
//     foreign, such as those that readiness gates refer to.
//   - A [Sink] receives statuses: an API server, a file, a message bus.
//   - A pod is gone when its containers have stopped and no source contains it. Its
//     UID can be used again: a static pod whose manifest comes back has the UID that
//     it had before.
//
// # Parts
//
// [Generate] is a pure function: the same [Input] gives the same status. A
// [Manager] keeps and delivers statuses; [Store] is the default. The calls
// for one pod are
//
//	s := status.Generate(status.Input{Pod: pod, Runtime: observed, Previous: prev, Now: now})
//	m.Set(pod, s)      // at each sync
//	m.Terminate(pod)   // once, when the containers have stopped and the volumes are torn down
//	m.Forget(pod.UID)  // when the pod is gone; or Prune, for all pods that are gone
//
// # Guarantees
//
//   - A final phase stays, and a Running pod does not become Pending again.
//   - The last status of a pod that was terminated is final, whatever its source.
//   - Restart counts, start time and observed generation never decrease.
//   - A final phase is not delivered while a container of the pod may run. So a receiver of
//     the final phase can use the resources of the pod.
//   - The latest status of each pod is delivered. Statuses between two deliveries are
//     skipped, and a status that equals the last one is not delivered.
//   - Deliveries for one pod do not overlap. Deliveries for different pods run
//     concurrently.
//   - Of the deliveries that wait, final phases and, once in 10 s for each pod, changes of readiness
//     come first.
//   - A failed delivery is repeated with back-off until it succeeds, a newer status
//     replaces it, or the sink returns [ErrGone].
//   - If calls for several pods fail and none succeeds, a circuit breaker opens: only one pod is tried, every 2 to 3 s.
//     When a call succeeds, all are tried. A new status is always tried once.
//   - A status that the sink refuses is repeated less and less often; see [ErrRefused].
//   - The sink can request a further delivery of the latest status.
//   - Each delivery has a deadline. A delivery that does not return after its deadline
//     delays no other pod; see [Options.DeliveryTimeout] and [Store.Healthy].
//   - The sink receives the end of each pod at least once, after the last status
//     of the pod and before the first status of a later pod of the same UID.
//
// # Goroutines
//
// [Store.Run] has one loop, one goroutine for each call of the sink, and one for WatchReceiver. It joins
// all of them before it returns. All other methods only take the manager's lock.
//
// # Differences from kubelet 1.37
//
//   - In kubelet a static pod that was stopped ends as Running.
//   - In kubelet a Running pod whose sandbox is created again can become Pending.
//   - Kubelet delivers one status at a time; here different pods are concurrent.
//   - A container that the runtime has lost counts as one restart when its next
//     instance runs, whatever restart count the runtime reports by then.
//   - A sidecar that has exited with 0 and waits for its restart is Waiting.
//   - Without an API server the start time is the creation time of the oldest known
//     sandbox or container, so that a restart of the agent does not change it.
//   - recursiveReadOnly in volumeMounts is what the runtime reports of the mount.
//   - The health of devices (allocatedResourcesStatus) is edited by the components that give them, see
//     lifecycle.StatusEditor. Digests of image volumes (alpha in kubelet) are not generated.
package status

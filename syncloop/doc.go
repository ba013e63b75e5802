// Package syncloop has the loop of a node agent. The loop receives all changes of the desired
// pods and of the runtime, and passes them to a [Handler]. The default handler does admission
// and housekeeping.
//
// # Vocabulary
//
//   - An input is a channel that the loop selects on: changes of the desired pods
//     (podconfig), changes in the runtime (pleg), results of probes, changes of the secrets and
//     config maps that pods refer to, and timers.
//   - A handler handles the inputs. [PodHandler] is the default.
//   - Admission is the decision whether a new pod may run. A [lifecycle.Admitter] makes it.
//     [lifecycle.Steps] calls several in order, and [Limits] has kubelet's checks.
//   - A resize is a change of CPU or memory of the containers of a pod of an API server
//     (KEP-1287). It is allocated if it is admitted. It is pending until then: the pod runs
//     with the resources that it holds.
//   - A refused pod was not admitted. It is Failed. It has a worker only while it is stopped,
//     because an earlier agent has started it, or taken down before its deletion.
//   - Housekeeping is [Handler].HandlePodCleanups, which compares the desired pods
//     with workers, runtime and disk.
//   - An orphan is a pod in the runtime that is not to run on the node, and has no worker.
//
// # The loop
//
// [Loop] handles one input after the other, in one goroutine. It does no work on a pod
// and waits for none: the handler passes the pod to its worker and returns. Secrets and config
// maps that have changed come by a channel, like all other inputs; see [Deps].Objects. A liveness
// tick each 30 s keeps [Loop.LastIteration] recent while nothing happens.
//
// Housekeeping is done each 2 seconds, and 250 ms after [Loop.PodEnded]. It is less frequent while
// nothing happens, see [Options].HousekeepingPeriod: a wake-up of an idle machine costs more CPU
// time than most of the work of the loop.
//
// The loop pauses while the runtime does not answer or the PLEG is unhealthy. It then
// takes nothing from its inputs, which merge their changes by pod. It checks again after 100 ms,
// doubling to 5 s. It does not pause if only the pod network is missing, because pods with the
// host's network can run.
//
// # The default handler
//
// [PodHandler] records the desired pods, admits new ones, and turns each change into an
// update for a pod's worker. An update that does not act on running containers causes an
// event, or with [HandlerOptions].RecreateUpdated a new start of the pod. All parts receive a pod
// with the resources that it holds. Only the handler has those of a pending resize.
//
// Its housekeeping is kubelet's (HandlePodCleanups). It forgets workers of pods that are gone,
// starts pods that must be started again, stops orphans, drops statuses and probes, and reports
// the end of pods. For pods that are gone it calls the step Gone, in which a component removes the
// directory (kubelet: cleanupOrphanedPodDirs). It lists the runtime only if there may be an
// orphan, and every 5 minutes.
//
// Housekeeping begins when every source has delivered: until then it is not known which
// pods are desired. There is one exception. A pod that an earlier agent ran under the
// full name of a desired pod is stopped as soon as that pod is added, and the worker of
// the new pod waits for its end.
//
// Restored pods are admitted and run like new ones. Their source has not delivered yet,
// so nothing is cleaned up because of them. A [checkpoint.Store] keeps the pods to restore.
//
// # Guarantees
//
//   - The methods of the handler are called from one goroutine, so they need no locks
//     against each other. ResizePending is called from any.
//   - A change of the desired pods is handled completely before the next input.
//   - An update of an admitted pod is not admitted again, unless it is a resize.
//   - [Loop.LastIteration] shows that the loop makes progress, for health checks.
//   - Run returns when the goroutines that it started have ended.
package syncloop

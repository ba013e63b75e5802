// Package podsync has the default podworkers.Syncer. It does the work on one pod when the
// worker of the pod calls it.
//
// # Steps
//
// SyncPod brings a pod one step closer to its spec:
//
//  1. It starts the probes, which can take over the results in the status of the API server. Then it generates the API
//     status from the observed status and sets it.
//  2. It ends a pod that has finished, has exceeded its active deadline, or was measured to
//     have a volume larger than its size limit or to use more ephemeral storage than its
//     limits permit.
//  3. It makes the pod's directory, and the components prepare the pod: they set up the volumes, look up the pull
//     secrets and so on.
//  4. It calls SyncPod of the runtime, which starts, stops and resizes containers.
//  5. If the runtime returns new waiting reasons, such as a back-off, it generates the status
//     again. So the reason is in the status after this sync.
//
// SyncTerminatingPod ends liveness and startup probes and stops the pod. It returns nil
// only if a status that was read afterwards shows that nothing runs. SyncTerminatedPod
// takes down the volumes and sets the final status. SyncTerminatingOrphan stops a pod
// that has no spec.
//
// # Waits
//
// A step that returns the error of lifecycle.Wait, and a runtime that returns a [runtime.WaitError], have the pod wait
// without a failure: its reason and message are those of the containers, there is one event, and SyncPod returns no
// error. The error of a runtime that has reported neither an event nor the reason of a container is an event
// FailedSync, and the message of the containers that do not run.
//
// A step that is under way for 5 s is named: a component, a call of the runtime, an image, a hook, a volume, a secret,
// a provider of devices. The name is the message of the containers that wait, and in one event WaitingForStep. When the
// step ends, the message goes. A call of a worker has one timer for it. Its components name what they call by package
// internal/underway.
//
// # Directories
//
// The directory of a pod is <pods dir>/<uid>, with kubelet's layout. SyncPod makes it. When the
// pod is gone, package syncloop calls the step Gone of the components. The last one is that of the
// volumes of this package. It removes the directory, by Remove of [Deps].Volumes, a volume.Manager.
//
// # Guarantees
//
//   - Methods for different pods are safe for concurrent use. For one pod the worker
//     calls one method at a time.
//   - All methods can be repeated after any failure.
//   - The status follows probe results and a new sandbox while a call is under way, see
//     [podworkers.Syncer].RefreshStatus.
//   - The content of volumes follows its sources while SyncPod is under way, see
//     [podworkers.Syncer].Updated.
//   - The grace period of a pod that is being stopped continues when the agent is restarted:
//     a file in the pod's directory has its end.
//   - Storage is measured beside the syncs, see [podworkers.Syncer].Run. A sync never waits for
//     it, however many files a container has made.
//   - Between calls the Syncer keeps only the last waiting reasons of a pod, its latest resize,
//     the measurements of its storage, and the inputs of its last status. It drops them when the pod has
//     terminated.
package podsync

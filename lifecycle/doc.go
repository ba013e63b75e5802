// Package lifecycle has the steps of a pod's life that components of a node agent join.
//
// A component takes part in the life of each pod of the node: volumes are mounted before the sandbox
// of the pod is made, a device manager adds devices to containers, an eviction manager refuses pods
// while the node is short of memory. The core of the agent (podworkers, podsync, syncloop) knows the order of the
// steps, and none of the components. Each step is an interface of one method. A component
// implements those that it needs, and is given to the agent in kubeletkit.Options.Join.
//
// # Steps
//
// The life of a pod is Admit, then Prepare, EditSandbox, EditContainer and Running as often as the pod is
// synced, then Stopped, then Ended, then Gone.
//
//   - [Admitter]: a new pod, before it has a worker, and a pod that is to be resized. All pods are
//     admitted one after the other.
//   - [RefusalHandler]: a pod that is refused, and of which nothing runs.
//   - [Preparer]: before the sandbox is made, and at each later sync of the pod.
//   - [SandboxEditor]: when the configuration of a sandbox is made.
//   - [ContainerEditor]: when the configuration of a container is made.
//   - [RunningHandler]: when the IDs of containers that run are known.
//   - [StoppedHandler]: when nothing of the pod runs any more, before its phase shows that.
//   - [EndedHandler]: when nothing of the pod runs any more.
//   - [GoneHandler]: when the pod is not desired, and has no worker.
//
// # Guarantees
//
// Order: components are called in the order in which they are listed, those of the agent first. A component that has to
// come before or after others declares that, see [Ordered], and then its place in the list does not matter. Refused,
// Stopped, Ended and Gone are called in the reverse order. The steps of one pod never overlap, except that Gone of an
// earlier pod may come late. Steps of different pods run concurrently, except Admit.
//
// Restarts: the agent may be restarted at any time. Steps are then repeated, and earlier steps may be missing: the
// next agent calls Admit and Prepare again for pods that run already, Running for each container
// that runs, Ended also for a pod of which it has seen nothing else, and Gone with the UID alone. Each
// method is idempotent.
//
// A component that gives pods something sees what runs before it decides: Prepare of a pod that did not run when the
// agent started comes after the first Prepare of each pod that did, or after its end. That first Prepare is called for
// all components, also if one before has failed. PrepareRequest.Observed shows whether the pod runs. The order holds
// for all sources and for pods of the checkpoint. It has a limit: a pod that runs and hangs in a step, or that no
// source delivers, delays others by 10 s, and is not seen before. Admit has no such order. A component that decides in
// Admit, or whose decisions cannot be derived from what is observed, keeps its state itself, such as with
// the [runtime.States] of the checkpoint of the agent.
//
// What a component gives a pod, it takes back in Ended, Refused and Gone: each of them may be the only call for a pod.
//
// Errors: the interface of each step says what an error does. An error concerns one pod only. A
// panic is an error.
//
// Waits: a step that cannot be done yet, and has not failed, returns the error of [Wait]: Prepare, EditSandbox,
// EditContainer, and SyncPod of a runtime. Its reason and message are in the status of the containers that wait, and in
// one event. The log has no error, and the step is not polled: the component requests a sync of the pod when it need
// not wait any more. Resyncs go on.
//
// Resizes: a pod is resized while it runs. A component that holds resources of the pod as a whole gives it more in
// Prepare, before the runtime resizes its containers, and less in the Prepare of the next sync, in which
// PrepareRequest.Observed shows that the containers have less. See PrepareResponse.Changed and
// PrepareResponse.ResizeError.
//
// Cost: a component is called for all pods, and returns at once for a pod that does not
// need it. Steps that no component joins cost nothing.
//
// # The agent
//
// A component that needs its agent is a [Joiner], and gets a [Node]: its only door. Its constructor takes what is its
// own, so components can be made in any order, before there is an agent, and each works in one agent only. What a
// component offers to others is an interface of the package that uses it, and is found by Node.Components.
//
// A component that changes what is observed of pods is an [InspectionWrapper], and one that adds to their API status is
// a [StatusEditor]; a [StatusHandler] follows that status. A [NodeReadyChecker] keeps the node from being ready. A
// component that runs on its own besides, such as a monitor, also implements [Runner].
package lifecycle

// Package plan decides what to do with the containers of a pod. [Compute] takes the
// spec, the status and the time, and returns the [Actions] to carry out now. It is a
// pure function: it does no I/O, keeps no state and starts no goroutine.
//
// # Vocabulary
//
//   - The sandbox in use is the newest sandbox, if it is ready, is the only one that is
//     ready, has the namespaces that the spec requests, and has an address. (A sandbox on
//     the host's network needs none, and neither does one whose addresses the runtime does
//     not report.) Otherwise the pod gets a new sandbox with the next attempt number, and
//     starts again in it.
//   - An instance belongs to the pod if it is the newest one of a container in the spec
//     and is in the sandbox in use. Any other instance that runs is a stray, and is
//     stopped.
//   - The frontier is the last init container that was started in the sandbox in use.
//     Initialisation continues there. It is complete when a main container exists in the
//     sandbox.
//   - A successor is an instance that replaces another one.
//
// # Rules
//
// Init containers run one after the other, each until it succeeds. Initialisation goes
// past a sidecar when it runs and its startup probe has succeeded. Then the main
// containers start at the same time. A sidecar that stops is started again as long as a
// main container runs or will run. When none does, the pod is finished: everything is
// stopped, and no new sandbox is made. The same holds when an init container has failed
// for good.
//
// A container that has exited is started again if [podspec.ShouldRestart] is true. A
// container that has failed its liveness or startup probe is stopped, and started again
// unless its restart policy is Never. A container whose definition
// ([podspec.ContainerHash]) has changed, or whose state is unknown, is stopped and
// started again under any policy; the other containers of the pod are not touched. An
// ephemeral container is started once. Nothing is started in a pod with a deletion
// timestamp.
//
// # Back-off
//
// When a container stops for the first time, its successor is started at once. The next
// ones wait: [Backoff].Initial after the instance finished, then twice as long each
// time, up to Max. The wait starts from the beginning again after an instance that ran
// for Reset, when the successor starts Reset after the end of its wait or later, and when
// the image or the resources change. An instance is counted once,
// when its successor may start, however often Compute is called. [Actions].Crashes has
// the count; the caller passes it to the next call.
//
// After a restart of the agent, the wait is the one that was recorded with the newest
// instance; kubelet begins again. It is not derived from restart counts: these do not
// distinguish fast crashes from rare ones over a long time.
//
// Compute does not decide about the back-off of image pulls and of containers that
// cannot be created. The caller does.
//
// # Differences from kubelet
//
// The rules are those of kubelet 1.37, except:
//
//   - A successor is due even if the first attempt to start it fails. (In kubelet, a
//     changed container with policy Never is lost if its image cannot be pulled at
//     once.)
//   - An instance is counted once, not at each attempt to start its successor.
//   - When a sandbox is lost, each container is considered separately. A pod with policy
//     Never continues while a container has not run yet or may run again by its own
//     policy. A container with policy Never does not run twice in any pod.
//   - The sandbox ID shows which instances ran in another sandbox. So init containers
//     need not be removed before the new sandbox is initialised.
//   - A changed definition also replaces a sidecar that has not started. A hash that was
//     not recorded is not a change.
//   - Strays are stopped.
//   - The init container after a sidecar that is being replaced starts only when the
//     sidecar is back.
//   - Sidecars are stopped after init containers that still run, and nothing is stopped
//     after ephemeral containers.
//
// Compute resizes containers in place (KEP-1287) by comparing what the runtime reports with
// the spec, while kubelet keeps a record of what it has set. The resources whose change
// requires a restart are recorded with the container. A non-restartable init container is
// resized as well, as kubelet does since 1.36.
//
// # Restart of all containers
//
// A container whose restart rule has the action RestartAllContainers (KEP-5532) has all containers of the pod restarted
// when it exits. Compute decides to stop all instances, without their preStop hooks and with the least grace period,
// and to remove them, those of that container last. Without instances, the next call starts the pod anew in its
// sandbox, beginning with the init containers. What the runtime has shows how far it came, so that it also ends after a
// restart of the agent. Ephemeral containers run on.
//
// Unlike kubelet, Compute counts the restart for the back-off of the container that exited: it is removed, and
// so the containers are started, when its back-off is over.
package plan

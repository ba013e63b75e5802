// Package plan decides what a pod's containers should become. [Compute] takes
// the spec, what the runtime reports and the time, and returns the [Actions] to
// carry out now; it does no I/O, keeps no state and starts nothing.
//
// # Vocabulary
//
//   - The sandbox in use is the newest one, if it is ready, the only ready one, on
//     the right network and has an address. Else the pod gets another, with the
//     attempt number raised, and begins anew in it. So a runtime has to report an
//     address for each sandbox that is not on the host's network.
//   - An instance has a place in the pod if it is the newest of a container in the
//     spec, in the sandbox in use. Others that run are strays, and are stopped.
//   - The frontier is the last init container that has been executed in the
//     sandbox in use. Initialisation goes on from there, and is over once a main
//     container exists in the sandbox.
//   - A successor is the instance that replaces another.
//
// # What is decided
//
// Init containers run one after the other, each to success; a sidecar is passed
// when it runs and its startup probe has succeeded. Then the main containers
// start side by side. Sidecars that stop are started again for as long as a main
// container runs or is to run. When none does, the pod is done: everything is
// stopped, and no new sandbox is made. The same holds when an init container has
// failed for good.
//
// A container that has exited is started again as [runtime.ShouldRestart] says.
// One that has failed its liveness or startup probe is stopped, and started again
// unless its policy is Never. One whose definition ([runtime.ContainerHash]) has
// changed, or whose state the runtime does not know, is stopped and started again
// under any policy; the others of the pod are not touched. Ephemeral containers
// are started once. Nothing of a pod with a deletion timestamp is started.
//
// # Back-off
//
// The first time a container stops, its successor is started at once. After that
// it waits, counted from the time the instance finished: [Backoff].Initial, then
// twice as long each time, up to Max. An instance that ran for Reset clears the
// count, and so does a change of image or resources. Each instance is counted
// once, when its successor is let through, however often Compute is called: the
// count is in [Actions].Crashes and is handed in again with the next call.
//
// The count starts from nothing after a restart of the agent, as in kubelet.
// It is not guessed from restart counts: an agent that comes back must not make a
// container wait that kubelet would start at once, and restart counts do not tell
// quick crashes from the rare ones of a long life.
//
// Waiting for images, and for containers that cannot be created, is not decided
// here but by whoever carries out the actions.
//
// # Differences from kubelet
//
// The rules are those of kubelet 1.36, with these exceptions:
//
//   - A successor that was decided on is due even if starting it fails at first.
//     (There, a changed container under policy Never is lost when its image cannot
//     be pulled at once.)
//   - An instance is counted once, not at each attempt to start its successor.
//   - A lost sandbox is judged container by container. A pod of policy Never is
//     not given up while a container of it has not run yet or may run again by its
//     own policy, and a container of policy Never is not run twice in any pod.
//   - What ran before in another sandbox is told by its sandbox ID, so init
//     containers need not be removed for the new sandbox to be initialised.
//   - A changed definition also replaces an init container that has not passed yet,
//     and a sidecar that has not started. A hash that was not recorded is no
//     change.
//   - Strays are stopped.
//   - A sidecar that is to be replaced lets the next init container start only
//     when it is back.
//   - Sidecars are stopped after init containers that still run, and nothing is
//     stopped later than ephemeral containers.
//
// Resizing containers in place and the restart rule action RestartAllContainers
// are not covered; a container with such a rule follows its restart policy.
package plan

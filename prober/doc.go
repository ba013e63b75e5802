// Package prober runs the startup, liveness and readiness probes of containers
// and remembers what they found.
//
// # Vocabulary
//
//   - An instance is one container under one ID; a restart makes another.
//   - An attempt is one run of a probe's check. It succeeds, fails, or tells
//     nothing, when the check itself could not be made.
//   - A verdict is what successThreshold or failureThreshold attempts in a row have
//     settled. Until the first, an instance has not started, is not ready, and
//     is not unhealthy.
//
// # A walk through
//
// An agent calls AddPod when it begins to run a pod, and again at each sync: it
// is cheap. It calls Notify when the cached status of a pod may have changed: then
// the pod's probes look at it. A probe begins when its instance runs, its
// initial delay is over, and the startup probe, if there is one, has succeeded;
// it goes on at its period. When the pod begins to terminate,
// StopLivenessAndStartup keeps it from being found unhealthy; readiness goes on
// until RemovePod. Verdicts come on Results and stay readable through the methods
// of [runtime.ProbeResults], which [Manager] implements.
//
// # Guarantees
//
//   - Attempts of one probe do not overlap. An attempt ends when its instance has
//     ended, its pod is removed or Run's context ends.
//   - Nothing polls: a probe whose instance does not run, or which waits for a
//     startup probe, has no timer.
//   - A failed liveness or startup probe makes the instance unhealthy for good and
//     is not repeated until there is a new one.
//   - A Result is never lost: a slow reader sees the latest of each instance and
//     kind.
//   - After a restart of the agent, what pod.Status says of an instance holds until
//     a probe says otherwise, and the first attempts are spread over their period.
//
// # Differences from kubelet 1.36
//
//   - The first attempt follows the start of the container, or the success of its
//     startup probe, at once, not at the next tick of a period.
//   - Initial delays are kept to the moment, not to the full second.
//   - A gRPC server that cannot be reached fails the attempt at once, not at the end
//     of the timeout.
//   - A pod without an address is not probed; kubelet probes the host instead.
//   - A probe that is changed or removed in the spec is changed or removed here.
//   - No event is recorded; failures are in the log and in [Result.Message].
//
// The termination grace period of a probe is for who stops the container: it
// stands in the spec beside the probe.
package prober

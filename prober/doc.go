// Package prober runs the startup, liveness and readiness probes of containers
// and holds their results. [Manager] is the interface and [Prober] its default
// implementation. [Base] is a Manager without probes.
//
// # Vocabulary
//
//   - An instance is one container under one ID; a restart makes another.
//   - A [Handler] makes the checks of one type of probe, such as exec or httpGet.
//   - An attempt is one run of a probe's check. Its [Outcome] is a success, a
//     failure, or unknown if the check could not be made.
//   - A result is the outcome of successThreshold or failureThreshold attempts in a row.
//     Until the first result, an instance has not started, is not ready, and is not
//     unhealthy.
//
// # A walk through
//
// An agent calls AddPod when it begins to run a pod, and again at each sync, which
// is cheap. It calls Notify when the cached status of a pod may have changed; the
// probes of the pod then read it. A probe begins when its instance runs, its
// initial delay is over, and the startup probe, if there is one, has succeeded. It
// continues at its period. When the pod begins to terminate, the agent calls
// StopLivenessAndStartup, so that its containers do not become unhealthy; readiness
// probes continue until RemovePod. Changes of results are sent on Results, and the
// methods of [runtime.ProbeResults] return the present results.
//
// # Probe types of your own
//
// [Options.Handlers] handle a probe of the spec in place of the default handlers, or a probe
// that is defined elsewhere, such as in an annotation. Everything else (periods, thresholds,
// results, events) is as for the probes of the API. If a probe of the spec has no handler,
// each attempt is an error.
//
// # Guarantees
//
//   - Attempts of one probe do not overlap. An attempt ends when its instance has
//     ended, its pod is removed or the context of Run ends.
//   - Nothing polls: a probe whose instance does not run, or which waits for a
//     startup probe, has no timer.
//   - A failed liveness or startup probe makes the instance unhealthy for good, and
//     is not attempted again until there is a new instance.
//   - No result is lost: a slow reader receives the latest of each instance and
//     kind.
//   - After a restart of the agent, an instance that runs on has the results that [Options.States] has kept, or else
//     those in pod.Status, until a probe has another result. It stays started, and stays ready until its readiness
//     probe has failed failureThreshold times. The first attempts are spread over their period. Without both, it has
//     not started and is not ready until its probes succeed again.
//   - A panic of a handler is an attempt that could not be made.
//   - No attempt and no result waits for the [runtime.Observer]. One that blocks
//     loses what it would receive. If it still does at the end of Run, Run waits 3 s for it and returns.
//
// # Differences from kubelet 1.37
//
//   - The first attempt follows the start of the container, or the success of its
//     startup probe, at once, not at the next tick of a period.
//   - Initial delays are exact, not rounded to full seconds.
//   - A gRPC server that cannot be reached fails the attempt at once, not at the end
//     of the timeout.
//   - A pod without an address is not probed; kubelet probes the host instead.
//   - A probe that is changed or removed in the spec is changed or removed here.
//
// The termination grace period of a probe is read by the component that stops the
// container, from the probe in the spec.
package prober

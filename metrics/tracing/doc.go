// Package tracing makes OpenTelemetry spans of the lives of pods, from the history that an agent keeps. It is a module
// of its own: an agent without it links nothing of OpenTelemetry.
//
//	tracer, err := tracing.New(agent.Parts().History, provider, tracing.Options{NodeName: "edge-7"})
//	...
//	err = agent.Add("tracing", tracer.Run)
//
// # Vocabulary
//
//   - A history ([history.Store]) has records of what was seen, decided and done for each pod.
//   - The span of a pod is the root of a trace. It begins with the first record of the pod, and ends when the pod is
//     refused, when it has finished, or when it is gone.
//   - A run is an instance of a container, from its start to its exit. A restart is another run.
//
// # Spans
//
//	pod                     k8s.pod.uid, k8s.pod.name, k8s.namespace.name, k8s.node.name
//	├ pod.admission         the source; an error if the pod is refused
//	├ pod.prepare           from the admission to the first call of the runtime: volumes, secrets, cgroups
//	├ pod.sandbox           the creation of a sandbox, with its attempt
//	├ image.pull            container.image.name, k8s.container.name
//	├ container.start       creation and start
//	├ container             a run: k8s.container.name, k8s.container.restart_count; process.exit.code
//	│ ├ container.post_start, container.pre_stop     hooks
//	│ ├ container.unready   the readiness probe fails, or has not succeeded yet
//	│ └ container.stop      with the reason
//	├ container.backoff     from the back-off to the next attempt: k8s.container.status.reason
//	└ pod.stop              the termination, with the reason
//
// What has failed has the status Error and its text. Results of probes are events of their run. Changes of the spec,
// syncs that failed, evictions and kills for lack of memory are events of the pod. The spans of a container have
// k8s.container.name. Attributes of this package begin with "kubeletkit.".
//
// # Guarantees
//
//   - A Tracer reads the history in its own goroutine, so an exporter that blocks or fails delays no pod. Records that
//     the history drops meanwhile have no spans.
//   - It keeps its open spans, and nothing else: of at most [Options].MaxPods pods, and not of containers that wait. A
//     pod to which nothing happens costs no time.
//   - A span ends once. When the agent stops, all open spans end with the event "agent.stopped"; pods that go on
//     running have another trace with the next agent. What happened before [New] has no spans.
//   - Spans are delivered when they end. That of a pod that runs for weeks comes last, long after those below it.
//
// Times are those of the history, by the clock of the agent; a run ends at the time of the runtime.
package tracing

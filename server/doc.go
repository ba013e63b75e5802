// Package server serves kubelet's HTTP API. Each handler can also be mounted on its own, into a mux
// of the embedder; nothing but examples imports the package.
//
// [Kubelet] is the whole API, for the port of the API server, 10250. [ServeTLS] serves it, with a
// guard of package server/auth before it:
//
//	guard, err := auth.New(auth.Options{NodeName: name, Authenticators: …, Authorizer: …})
//	...
//	h := guard.Protect(server.Kubelet(agent, server.Options{…}))
//	err = agent.Add("port for the API server", func(ctx context.Context) error {
//		return server.ServeTLS(ctx, listener, h, server.TLSOptions{GetCertificate: serving.GetCertificate})
//	})
//
// In addition to the handlers below, it has [RunningPods], [Configz], [Flagz], [Statusz] and
// [Verbosity], and the profiles of package server/profiles.
//
// [Handler] is the read-only API. It has no authentication; bind it to the loopback
// address unless the network is trusted.
//
//   - GET /healthz returns "ok", or status 500 and the failed checks; see [Healthz].
//   - GET /pods returns a v1.PodList of the node's pods with their status.
//   - GET /metrics, /metrics/probes and /metrics/slis call the handlers in [Options].Metrics,
//     [Options].ProbeMetrics and [Options].SLIMetrics, if there are any.
//   - GET /stats/summary returns the usage of the node and its pods, see [Summary], and
//     GET /metrics/resource and /metrics/cadvisor call the handlers in
//     [Options].ResourceMetrics and [Options].CadvisorMetrics, if there are any.
//
// [Control] adds the handlers that only the agent's own user should reach. [ListenUnix] makes a
// socket for it.
//
//   - GET /containerLogs/{namespace}/{pod}/{container} returns the log of the container.
//     The query parameters are those of the API's PodLogOptions: follow, previous, tailLines,
//     sinceSeconds, sinceTime, timestamps, limitBytes and stream. With follow, the answer
//     continues across rotations of the log, and ends with the container as kubelet's. With
//     restarts=true as well, it continues with later instances as long as the pod lives.
//     Log files that were rotated before the request are read, too, also compressed ones. kubelet reads the newest file
//     only.
//   - POST /run/{namespace}/{pod}/{container} runs a command and returns its output when
//     it has ended. The parameter cmd is the command, which is split at spaces as kubelet
//     does; alternatively, the parameter command is given once for each argument. The
//     header X-Exit-Code has the exit code. (With kubelet, a code other than 0 is an
//     error.)
//
// [Kubelet] also has, if they are in its options:
//
//   - GET /logs/ has the files of /var/log and the logs of services, see [NodeLogs].
//   - POST /checkpoint/{namespace}/{pod}/{container} writes the state of a container to a
//     file, see [Checkpoint].
//   - GET /debug/history/{namespace}/{pod} is the history of a pod, see [History].
//
// In these paths {uid} may follow {pod}, as in kubelet's path of /run. It distinguishes pods
// of one name, of which one is terminating. The UID of a mirror pod stands for its static pod.
package server

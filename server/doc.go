// Package server serves a part of the kubelet's HTTP API. The read-only API
// ([Handler]) is
//
//   - GET /healthz: "ok", or 500 and what is wrong;
//   - GET /pods: a v1.PodList of the node's pods with their status;
//   - GET /metrics: what the handler of [Options].Metrics answers, if there is one.
//
// It has no authentication; bind it to loopback unless the network is trusted.
// [Control] adds what only the agent's own user should reach:
//
//   - GET /containerLogs/{namespace}/{pod}/{container} answers what the container
//     has written, with follow, tailLines, previous and timestamps as in the API's
//     PodLogOptions. What is followed goes on across rotation, and, other than with the
//     kubelet, across restarts of the container while its pod lives.
//   - POST /run/{namespace}/{pod}/{container}?cmd= runs a command, cut at its spaces as
//     the kubelet does, or one given as command=, once for each argument. The answer
//     is its output, when it has ended, with the exit code in the header
//     X-Exit-Code; for the kubelet, a code other than 0 is an error.
//
// [ListenUnix] makes a socket for it.
package server

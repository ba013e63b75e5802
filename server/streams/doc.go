// Package streams serves exec, attach and port-forward of kubelet's API. kubectl exec, attach, cp,
// debug and port-forward reach them through the API server.
//
//   - GET and POST /exec/{namespace}/{pod}/{container} runs a command. The query parameter
//     command is given once for each argument. input, output and error are 1 for the streams
//     that the client requests, at least one of them, and tty is 1 for a terminal.
//   - GET and POST /attach/{namespace}/{pod}/{container} connects to the main process, with the
//     same parameters but command and tty.
//   - GET and POST /portForward/{namespace}/{pod} forwards connections to TCP ports of the pod.
//     A WebSocket client that does not use SPDY within gives the parameter port, once for each
//     port.
//
// {uid} may follow {pod}. Pods that are terminating are served too.
//
// [Handlers] serves all of these paths. Its methods serve one each, so that a program can
// mount single ones in a mux of its own:
//
//	h := streams.New(agent, agent.Parts().Runtime, streams.Options{})
//	mux.HandleFunc("POST /exec/{namespace}/{pod}/{container}", h.Exec)
//
// They have no authentication: every client that reaches them can run commands in all containers.
// See package server/auth.
//
// # Runtimes
//
// A runtime whose streams another process serves, such as one of CRI, is a
// [runtime.StreamLocator]. The connection of the client is passed on to the URL, byte by byte,
// so the protocols are those of the runtime. The exceptions are WebSocket clients of version 5,
// which are translated to SPDY, and port-forward in a WebSocket, which is unpacked: as kubelet
// does (KEP-4006, feature gate ExtendWebSocketsToKubelet). An API server passes WebSocket requests
// on only to nodes that declare the feature, see DeclaredFeatures in package cluster/node. The
// permissions of the client, such as its token, are not passed on.
//
// A runtime in this process is a [runtime.Streamer], which receives readers and writers. Its
// clients use SPDY/3.1 with v4.channel.k8s.io or portforward.k8s.io, or WebSocket with
// v4.channel.k8s.io, v5.channel.k8s.io (not for port-forward), SPDY/3.1+portforward.k8s.io, and the
// older ones of containerd: channel.k8s.io, and base64 for both versions.
//
// # Errors
//
// The codes and texts are kubelet's: 404 for a pod that does not exist, 400 for parameters that
// are wrong, 500 for a container that does not run and for errors of the runtime. In addition,
// a container that the pod does not have is 404, a request that is no upgrade 400, one above
// [Options].MaxSessions 429, and a runtime without streams 501. An error after the session has
// begun reaches the client as a Status on its error stream.
//
// # The end of a session
//
// A session ends when the process, the client or the runtime ends it, when the context of the
// request ends, or when it was idle for [Options].IdleTimeout. Then its goroutines and
// connections end too. A slow client has 30 seconds to receive the rest. If a client disconnects
// while its input waits for a process that does not read, the session ends within seconds. If the
// input waits in a connection that is passed on, the session ends when the client's machine closes
// the connection, after some minutes.
package streams

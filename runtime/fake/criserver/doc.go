// Package criserver serves a fake runtime on sockets, for other processes and for tools such
// as crictl: [Serve] is a CRI v1 server, and [ServeStreams] serves the streams of exec, attach
// and port-forward.
//
//	rt := fake.New(fake.Options{})
//	go criserver.Serve(ctx, rt, listener)
//
// It is a package of its own because streams need an HTTP server with SPDY and WebSocket,
// which package fake does not link.
//
// The functions block until their context ends, and leave no goroutine behind.
// Sockets are not part of virtual time (testing/synctest).
package criserver

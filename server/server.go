package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxHeader is the limit for the headers of a request to a port, in bytes. Go's default of
// 1 MB takes tens of megabytes in each connection when it is parsed.
const maxHeader = 16 << 10

// stopGrace is the time that requests have to end when the server stops.
const stopGrace = time.Second

// Agent is the agent that the server reports on. A *kubeletkit.Agent implements it. It is
// safe for concurrent use.
type Agent interface {
	runtime.Execer
	// Pods returns the node's pods with their status. The handlers do not change them.
	Pods() []*v1.Pod
	// Pod returns one of Pods; ok is false if none has the UID.
	Pod(uid types.UID) (pod *v1.Pod, ok bool)
	// Terminating returns the pods that are not desired any more, with their status. [Control] serves
	// their logs, and runs commands in them. The handlers do not change them.
	Terminating() []*v1.Pod
	// TranslateUID returns the UID of the static pod if uid is that of its mirror pod, which is the
	// UID that the API server shows. Otherwise it returns uid.
	TranslateUID(uid types.UID) types.UID
	// RuntimeStatus returns the last known status of the pod in the runtime. ok is false if
	// none is known.
	RuntimeStatus(pod types.UID) (status *runtime.PodStatus, ok bool)
	// WatchRuntimeStatus returns a channel that receives a value when RuntimeStatus of the pod
	// may show other containers or states. A reader that follows a log wakes then. If the channel is
	// nil, changes are not reported, and the reader wakes once a second. The caller calls stop at the end.
	WatchRuntimeStatus(pod types.UID) (changed <-chan struct{}, stop func())
	// Healthy returns nil if the agent works, and otherwise what is wrong.
	Healthy() error
}

// Serve serves the handler on the listener until ctx ends. Then it closes the listener,
// waits up to a second for the requests to end, closes their connections, waits up to another
// second for the handlers, and returns nil. If the listener fails, it returns the error.
//
// Clients of a listener that is not a unix socket are not trusted:
//
//   - A port has up to 500 connections, and up to an eighth of the files that the process may have
//     open (RLIMIT_NOFILE). Above that, a new one takes the place of the oldest.
//   - A request has 16 KiB of headers at most.
//   - A client that receives nothing for 30 seconds, or does not send the body of a request in 10,
//     is disconnected.
//   - In connections to a loopback address, the Host of a request must be localhost or an IP
//     address.
//
// Clients behind [Trusted] have no limit of connections, and more time to receive. Those that a
// guard of package server/auth knows do not count while it decides.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return serve(ctx, l, h, nil, nil)
}

// serve is Serve, by TLS if config is not nil. Errors of connections go to errorLog; if it is nil,
// to the log of package log.
func serve(ctx context.Context, l net.Listener, h http.Handler, config *tls.Config, errorLog *log.Logger) error {
	ctx, cancel := context.WithCancel(ctx) // that of the requests, which end with the listener
	defer cancel()
	srv := &http.Server{
		Handler: h, TLSConfig: config, ErrorLog: errorLog, Protocols: new(http.Protocols),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// "OPTIONS *" is a request like others, which the handler refuses.
		DisableGeneralOptionsHandler: true,
	}
	srv.Protocols.SetHTTP1(true)
	if l.Addr().Network() != "unix" {
		srv.MaxHeaderBytes = maxHeader
		srv.Handler = distrusting(withBodyDeadline(h))
		limit := &nodenet.ConnLimit{Max: nodenet.MaxConns(maxConns)}
		srv.ConnState = limit.Changed
		srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			conn := newServerConn(c, limit)
			return context.WithValue(nodenet.NewContext(ctx, conn.Conn), connKey{}, conn)
		}
		// A web page cannot pass the check of a certificate or a token by another name.
		if config == nil {
			srv.Handler = refuseRebinding(srv.Handler)
		}
		l = deadlineListener{l}
	}
	var handlers handlerGroup
	srv.Handler = handlers.track(srv.Handler)
	done := make(chan error, 1) // one value, of the one goroutine, or in its place
	go func() {
		if config != nil {
			done <- srv.ServeTLS(l, "", "")
		} else {
			done <- srv.Serve(l)
		}
	}()
	var failed error
	select {
	case err := <-done:
		failed = fmt.Errorf("serving on %s: %w", l.Addr(), err)
		done <- http.ErrServerClosed
		cancel()
	case <-ctx.Done():
	}
	sctx, stopped := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer stopped()
	if err := srv.Shutdown(sctx); err != nil {
		_ = srv.Close()
	}
	ended := make(chan struct{})
	go func() { // ends with the last handler
		handlers.wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(stopGrace):
	}
	if err := <-done; failed == nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return failed
}

// handlerGroup is the handlers that run, also those that have taken over their connection, for which
// [http.Server].Shutdown does not wait.
type handlerGroup struct {
	mu      sync.Mutex
	stopped bool // no further handler begins
	running sync.WaitGroup
}

// track returns a handler that calls h as one of the group.
func (g *handlerGroup) track(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		g.mu.Lock()
		if g.stopped {
			g.mu.Unlock()
			http.Error(w, "the server stops", http.StatusServiceUnavailable)
			return
		}
		g.running.Add(1)
		g.mu.Unlock()
		defer g.running.Done()
		h.ServeHTTP(w, req)
	})
}

// wait waits for the handlers that run. From then on requests are refused.
func (g *handlerGroup) wait() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.running.Wait()
}

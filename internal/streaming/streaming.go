// Package streaming serves sessions of exec, attach and port-forward to clients of SPDY and WebSocket. The
// handlers of package server/streams and the server of runtime/process use it: what a client can cost has
// its bounds here, once for both.
//
// Exec and attach have SPDY/3.1 with v4.channel.k8s.io, and WebSocket with v5.channel.k8s.io,
// v4.channel.k8s.io, channel.k8s.io or none, the latter three also as base64. Port-forward has SPDY/3.1 with
// portforward.k8s.io, the same in a WebSocket, and WebSocket with v4.channel.k8s.io.
package streaming

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

// Requested are the streams that a client requests: a runtime.StreamOptions.
type Requested struct{ Stdin, Stdout, Stderr, TTY bool }

// Streams are the streams of a client. They convert to runtime.Streams, which documents them.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	Sizes          <-chan Size
}

// Size is a runtime.TerminalSize.
type Size = struct{ Width, Height uint16 }

// Options are the settings of a [Server]. The zero value is valid.
type Options struct {
	// Logger receives, at level 1, why a session did not begin.
	Logger logr.Logger
	// IdleTimeout is the time after which a session ends in which nothing is sent. Default: 4 h, as in
	// kubelet. Negative means never.
	IdleTimeout time.Duration
	// SetupTimeout is the time that a client has to open its streams. Default: 30 s, as in kubelet.
	SetupTimeout time.Duration
	// MaxSessions is the maximum number of sessions at once. Default: 1000. Negative means no limit.
	MaxSessions int
	// MaxForwards is the maximum number of connections that a session of port-forward has at once.
	// Default: 1000.
	MaxForwards int
	// CheckPeriod is the time between two checks whether a client is still connected. A read would notice
	// that, but nothing is read while the process does not read its input. Default: 5 s.
	CheckPeriod time.Duration
	// Linger is the time that a client has to close its connection after it has received all. Default: 1 s.
	Linger time.Duration
}

// Server has the sessions of all clients. It is safe for concurrent use.
type Server struct {
	// Options are the settings with their defaults. They must not change while there are sessions.
	Options
	sessions atomic.Int64
	large    largeFrames
}

// New returns a server without sessions.
func New(opts Options) *Server {
	setDefault(&opts.IdleTimeout, 4*time.Hour)
	setDefault(&opts.SetupTimeout, 30*time.Second)
	setDefault(&opts.MaxSessions, 1000)
	setDefault(&opts.MaxForwards, 1000)
	setDefault(&opts.CheckPeriod, 5*time.Second)
	setDefault(&opts.Linger, time.Second)
	return &Server{Options: opts}
}

func setDefault[T comparable](value *T, fallback T) {
	if *value == *new(T) {
		*value = fallback
	}
}

// Sessions returns the number of sessions that are open.
func (s *Server) Sessions() int { return int(s.sessions.Load()) }

// Serve calls f with a new session, which ends when f returns. A request above MaxSessions is answered with
// status 429.
func (s *Server) Serve(w http.ResponseWriter, req *http.Request, f func(*Session, *http.Request)) {
	open := s.sessions.Add(1)
	defer s.sessions.Add(-1)
	if s.MaxSessions > 0 && open > int64(s.MaxSessions) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("too many sessions: %d are open", open-1), http.StatusTooManyRequests)
		return
	}
	session := &Session{server: s, large: &frameBudget{all: &s.large}, begins: make(chan struct{}, maxBegins)}
	// Libraries log to the logger in the context.
	session.ctx, session.cancel = context.WithCancel(logr.NewContext(req.Context(), s.Logger.V(1)))
	defer session.end()
	f(session, req.WithContext(session.ctx))
}

// The protocols of WebSockets with channels before version 4, in which the error stream has a text.
const (
	v0       = ""
	v1       = wsstream.ChannelWebSocketProtocol
	v1Base64 = wsstream.Base64ChannelWebSocketProtocol
	v4Base64 = "v4." + wsstream.Base64ChannelWebSocketProtocol
)

// Supports reports whether a client that requests a WebSocket offers a protocol that this package has for
// port-forward, or for exec and attach. It is true for other clients.
func Supports(req *http.Request, forward bool) bool {
	if !wsstream.IsWebSocketRequest(req) {
		return true
	}
	offered := subprotocol.Offered(req.Header)
	if len(offered) == 0 {
		return true
	}
	supported := []string{subprotocol.V5, subprotocol.V4, v4Base64, v1, v1Base64}
	if forward {
		supported = []string{subprotocol.Tunnel, subprotocol.V4, v4Base64}
	}
	return slices.ContainsFunc(offered, func(p string) bool { return slices.Contains(supported, p) })
}

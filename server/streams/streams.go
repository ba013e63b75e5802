package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/streaming"
	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/internal/lookup"
)

// Options are the settings of [Handlers]. The zero value is valid.
type Options struct {
	// Logger receives, at level 1, why a session did not begin. Default: that of package slog.
	Logger logr.Logger
	// IdleTimeout is the time after which a session ends in which nothing is sent, not even a
	// ping; kubectl sends one every 5 s. It is kubelet's streamingConnectionIdleTimeout.
	// Default: 4 h, as in kubelet. Negative means never.
	IdleTimeout time.Duration
	// SetupTimeout is the time that a runtime has to open a session, and a client to open its
	// streams. Default: 30 s, as in kubelet.
	SetupTimeout time.Duration
	// MaxSessions is the maximum number of sessions at once; each takes about 200 kB, and
	// up to 4 MB more while nothing reads what its SPDY client sends. A
	// request above it is answered with status 429. Default: 1000. Negative means no limit.
	MaxSessions int
}

// Handlers serves the streams of the containers of a node. It is safe for concurrent use.
type Handlers struct {
	agent server.Agent
	// local and remote are the two ways to the streams of the runtime. If both are nil, it has
	// none. If both are there, local is used.
	local     runtime.Streamer
	remote    runtime.StreamLocator
	sessions  *streaming.Server
	transport *http.Transport
	mux       *http.ServeMux
}

// New returns the handlers. rt is the runtime, which is a [runtime.Streamer] or a
// [runtime.StreamLocator], itself or through Unwrap; with another one, requests are answered
// with status 501.
func New(agent server.Agent, rt any, opts Options) *Handlers {
	opts.Logger = logging.OrDefault(opts.Logger)
	sessions := streaming.New(streaming.Options{Logger: opts.Logger, IdleTimeout: opts.IdleTimeout,
		SetupTimeout: opts.SetupTimeout, MaxSessions: opts.MaxSessions})
	h := &Handlers{agent: agent, sessions: sessions, transport: newTransport(sessions.SetupTimeout),
		mux: http.NewServeMux()}
	if local, ok := runtime.Optional[runtime.Streamer](rt); ok {
		h.local = recovering{local}
	}
	h.remote, _ = runtime.Optional[runtime.StreamLocator](rt)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, pod := range []string{"{namespace}/{pod}", "{namespace}/{pod}/{uid}"} {
			h.mux.HandleFunc(method+" /exec/"+pod+"/{container}", h.Exec)
			h.mux.HandleFunc(method+" /attach/"+pod+"/{container}", h.Attach)
			h.mux.HandleFunc(method+" /portForward/"+pod, h.PortForward)
		}
	}
	return h
}

// ServeHTTP serves all paths of the package documentation.
func (h *Handlers) ServeHTTP(w http.ResponseWriter, req *http.Request) { h.mux.ServeHTTP(w, req) }

// Sessions returns the number of sessions that are open.
func (h *Handlers) Sessions() int { return h.sessions.Sessions() }

// Exec serves /exec/{namespace}/{pod}/{container}, with these names in the pattern, and
// optionally {uid}.
func (h *Handlers) Exec(w http.ResponseWriter, req *http.Request) {
	opts, err := optionsOf(req)
	cmd := req.URL.Query()["command"]
	if err == nil && len(cmd) == 0 {
		err = errors.New("no command is given: want the parameter command, once for each argument")
	}
	h.serve(w, req, err, func(s *streaming.Session, req *http.Request, t target) {
		c, err := t.running(req.PathValue("container"))
		if err != nil {
			answer(w, err)
			return
		}
		if h.local != nil {
			s.ServeProcess(w, req, streaming.Requested(opts), opts.TTY, "error executing command in container",
				func(ctx context.Context, streams streaming.Streams) (int32, error) {
					return h.local.ExecStream(ctx, c.ID, cmd, runtime.Streams(streams))
				})
			return
		}
		at, err := h.locate(s, func(ctx context.Context) (*url.URL,
			error) {
			return h.remote.ExecURL(ctx, c.ID, cmd, opts)
		})
		if err != nil {
			answer(w, err)
			return
		}
		h.serveRemote(s, w, req, at, opts, opts)
	})
}

// Attach serves /attach/{namespace}/{pod}/{container}, with these names in the pattern, and
// optionally {uid}. As in kubelet, the container decides whether there is a terminal, and
// not the request.
func (h *Handlers) Attach(w http.ResponseWriter, req *http.Request) {
	requested, err := optionsOf(req)
	h.serve(w, req, err, func(s *streaming.Session, req *http.Request, t target) {
		c, err := t.running(req.PathValue("container"))
		if err != nil {
			answer(w, err)
			return
		}
		opts := requested
		if opts.TTY = t.container.TTY; opts.TTY {
			opts.Stderr = false
		}
		if h.local != nil {
			s.ServeProcess(w, req, streaming.Requested(requested), opts.TTY, "error attaching to container",
				func(ctx context.Context, streams streaming.Streams) (int32, error) {
					return 0, h.local.AttachStream(ctx, c.ID, runtime.Streams(streams))
				})
			return
		}
		at, err := h.locate(s, func(ctx context.Context) (*url.URL,
			error) {
			return h.remote.AttachURL(ctx, c.ID, opts)
		})
		if err != nil {
			answer(w, err)
			return
		}
		h.serveRemote(s, w, req, at, requested, opts)
	})
}

// PortForward serves /portForward/{namespace}/{pod}, with these names in the pattern, and
// optionally {uid}.
func (h *Handlers) PortForward(w http.ResponseWriter, req *http.Request) {
	tunnel := subprotocol.IsOffered(req, subprotocol.Tunnel)
	var ports []int32
	var err error
	if wsstream.IsWebSocketRequest(req) && !tunnel {
		ports, err = portsOf(req)
	}
	h.serve(w, req, err, func(s *streaming.Session, req *http.Request, t target) {
		sandbox := t.status.ReadySandbox()
		if sandbox == nil {
			answer(w, fmt.Errorf("pod not found (%q): it does not run", t.pod.Name+"_"+t.pod.Namespace))
			return
		}
		if h.local != nil {
			s.ServeForward(w, req, sandbox.ID, ports, func(ctx context.Context, port int32,
				conn io.ReadWriteCloser) error {
				return h.local.ForwardPort(ctx, sandbox.ID, port, conn)
			})
			return
		}
		at, err := h.locate(s, func(ctx context.Context) (*url.URL,
			error) {
			return h.remote.PortForwardURL(ctx, sandbox.ID, ports)
		})
		if err != nil {
			answer(w, err)
			return
		}
		if !tunnel {
			h.pass(s, w, req, at)
			return
		}
		conn, err := h.upgrade(s.Context(), at, subprotocol.Forward)
		if err != nil {
			if s.Context().Err() == nil {
				refuse(w, err)
			}
			return
		}
		defer conn.Close()
		s.Unpack(w, req, &backend{conn})
	})
}

// serve checks what all requests have in common, and calls f with the session. bad is the
// error of the parameters.
func (h *Handlers) serve(w http.ResponseWriter, req *http.Request, bad error,
	f func(*streaming.Session, *http.Request, target)) {
	if bad != nil {
		http.Error(w, bad.Error(), http.StatusBadRequest)
		return
	}
	pod, container := lookup.Request(h.agent, req)
	if pod == nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	if !httpstream.IsUpgradeRequest(req) {
		http.Error(w, "Upgrade request required", http.StatusBadRequest)
		return
	}
	if h.local == nil && h.remote == nil {
		http.Error(w, "the container runtime of this node serves no streams", http.StatusNotImplemented)
		return
	}
	h.sessions.Serve(w, req, func(s *streaming.Session, req *http.Request) {
		status, _ := h.agent.RuntimeStatus(pod.UID)
		f(s, req, target{pod: pod, container: container, status: status})
	})
}

// optionsOf returns the streams that a request of exec or attach is for. As in kubelet, a
// terminal has no stderr of its own.
func optionsOf(req *http.Request) (runtime.StreamOptions, error) {
	query := req.URL.Query()
	is := func(name string) bool { return query.Get(name) == "1" }
	o := runtime.StreamOptions{Stdin: is("input"), Stdout: is("output"), Stderr: is("error"), TTY: is("tty")}
	if o.TTY {
		o.Stderr = false
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// portsOf returns the ports of a WebSocket request.
func portsOf(req *http.Request) (ports []int32, err error) {
	values := req.URL.Query()["port"]
	if len(values) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	if len(values) > streaming.MaxPorts {
		return nil, fmt.Errorf("%d ports are requested: the maximum is %d", len(values), streaming.MaxPorts)
	}
	for _, value := range values {
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("the port %q is not one from 1 to 65535", value)
		}
		ports = append(ports, int32(port))
	}
	return ports, nil
}

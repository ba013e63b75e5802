package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/internal/streaming"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// maxStreamConns is the maximum number of connections that are no streams yet.
	maxStreamConns = 100
	// maxTokens is the maximum number of requests that wait for their client, and tokenTime the time for
	// which each does.
	maxTokens = 1000
	tokenTime = time.Minute
)

// streamServer serves exec, attach and port-forward on a port of the loopback address. A
// request needs a token, which is valid once and for a minute.
type streamServer struct {
	s        *Server
	sessions *streaming.Server
	http     *http.Server
	listener net.Listener
	cancel   context.CancelFunc // ends the sessions
	handlers sync.WaitGroup
	tokens   tokens
}

func newStreamServer(s *Server) (*streamServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.life)
	ss := &streamServer{s: s, sessions: streaming.New(streaming.Options{Logger: s.opts.Logger}),
		listener: l, cancel: cancel}
	mux := http.NewServeMux()
	for path, serve := range map[string]func(*streaming.Session, http.ResponseWriter, *http.Request, any){
		"/exec/{token}": ss.exec, "/attach/{token}": ss.attach, "/portforward/{token}": ss.portForward,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
			ss.handlers.Add(1)
			defer ss.handlers.Done()
			if req.Method != http.MethodGet && req.Method != http.MethodPost {
				http.Error(w, "want GET or POST", http.StatusMethodNotAllowed)
				return
			}
			// The token of a client that then falls back to SPDY stays valid, as after a protocol of the future.
			if !streaming.Supports(req, path == "/portforward/{token}") {
				http.Error(w, "none of these WebSocket protocols is supported; v5.channel.k8s.io, v4.channel.k8s.io "+
					"and SPDY are", http.StatusBadRequest)
				return
			}
			request, ok := ss.tokens.take(path[:len(path)-len("{token}")] + req.PathValue("token"))
			if !ok {
				http.NotFound(w, req)
				return
			}
			ss.sessions.Serve(w, req,
				func(session *streaming.Session, req *http.Request) { serve(session, w, req, request) })
		})
	}
	ss.http = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10, // 1 MB, the default, takes tens of megabytes when it is parsed
		// Every local user can connect. A stream, which has a token, does not count.
		ConnState:   (&nodenet.ConnLimit{Max: nodenet.MaxConns(maxStreamConns)}).Changed,
		Handler:     mux,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	return ss, nil
}

func (ss *streamServer) serve() error {
	if err := ss.http.Serve(ss.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// close ends all streams and waits for them. It may be called more than once.
func (ss *streamServer) close() {
	ss.cancel()
	_ = ss.http.Close()
	_ = ss.listener.Close() // if serve was not called
	ss.handlers.Wait()
}

// url returns a URL that is valid once for the request. path is /exec/, /attach/ or /portforward/.
func (ss *streamServer) url(path string, request any) (string, error) {
	path += rand.Text()
	if !ss.tokens.put(path, request) {
		return "", status.Errorf(codes.ResourceExhausted, "%d requests of streams wait for their clients", maxTokens)
	}
	return (&url.URL{Scheme: "http", Host: ss.listener.Addr().String(), Path: path}).String(), nil
}

func (ss *streamServer) exec(session *streaming.Session, w http.ResponseWriter, req *http.Request, request any) {
	r := request.(*criv1.ExecRequest)
	opts := streaming.Requested{Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(), TTY: r.GetTty()}
	session.ServeProcess(w, req, opts, opts.TTY, "error executing command in container", func(ctx context.Context,
		streams streaming.Streams) (code int32, err error) {
		err = runtime.Recover(func() (err error) {
			code, err = ss.s.execStream(ctx, r.GetContainerId(), r.GetCmd(), runtime.Streams(streams))
			return err
		})
		return code, err
	})
}

func (ss *streamServer) attach(session *streaming.Session, w http.ResponseWriter, req *http.Request, request any) {
	r := request.(*criv1.AttachRequest)
	opts := streaming.Requested{Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(), TTY: r.GetTty()}
	session.ServeProcess(w, req, opts, opts.TTY, "error attaching to container", func(ctx context.Context,
		streams streaming.Streams) (int32, error) {
		return 0,
			runtime.Recover(
				func() error { return ss.s.attachStream(ctx, r.GetContainerId(), runtime.Streams(streams)) })
	})
}

func (ss *streamServer) portForward(session *streaming.Session, w http.ResponseWriter, req *http.Request, request any) {
	r := request.(*criv1.PortForwardRequest)
	session.ServeForward(w, req, r.GetPodSandboxId(), r.GetPort(), func(ctx context.Context, port int32,
		conn io.ReadWriteCloser) error {
		return runtime.Recover(func() error { return ss.s.forwardPort(ctx, r.GetPodSandboxId(), port, conn) })
	})
}

// tokens are the requests that wait for their clients, by the paths of their URLs.
type tokens struct {
	mu      sync.Mutex
	waiting map[string]token
}

type token struct {
	request any // one of CRI
	until   time.Time
}

// put returns false if there are too many.
func (t *tokens) put(path string, request any) bool {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= maxTokens {
		for path, token := range t.waiting {
			if now.After(token.until) {
				delete(t.waiting, path)
			}
		}
		if len(t.waiting) >= maxTokens {
			return false
		}
	}
	if t.waiting == nil {
		t.waiting = map[string]token{}
	}
	t.waiting[path] = token{request, now.Add(tokenTime)}
	return true
}

// take removes a request and returns it, if its time is not over.
func (t *tokens) take(path string) (request any, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.waiting[path]
	delete(t.waiting, path)
	return found.request, time.Now().Before(found.until)
}

// checkStreams returns an error for streams that a request of CRI must not have.
func checkStreams(stdin, stdout, stderr, tty bool) error {
	if tty && stderr {
		return status.Error(codes.InvalidArgument, "tty and stderr cannot both be true")
	}
	if !stdin && !stdout && !stderr {
		return status.Error(codes.InvalidArgument, "none of stdin, stdout and stderr is requested")
	}
	return nil
}

// Exec implements CRI. It returns the URL of the stream.
func (s *runtimeService) Exec(_ context.Context, req *criv1.ExecRequest) (*criv1.ExecResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no command is given")
	}
	if err := checkStreams(req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()); err != nil {
		return nil, err
	}
	if _, err := s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	at, err := s.streams.url("/exec/", req)
	return &criv1.ExecResponse{Url: at}, err
}

// Attach implements CRI. It returns the URL of the stream.
func (s *runtimeService) Attach(_ context.Context, req *criv1.AttachRequest) (*criv1.AttachResponse, error) {
	if err := checkStreams(req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()); err != nil {
		return nil, err
	}
	c, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.rec.Config.GetTty() != req.GetTty() {
		return nil, status.Errorf(codes.InvalidArgument, "%s: tty is %t, and the request has %t", c.about(),
			c.rec.Config.GetTty(), req.GetTty())
	}
	at, err := s.streams.url("/attach/", req)
	return &criv1.AttachResponse{Url: at}, err
}

// PortForward implements CRI. It returns the URL of the stream.
func (s *runtimeService) PortForward(_ context.Context,
	req *criv1.PortForwardRequest) (*criv1.PortForwardResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if b.state() != criv1.PodSandboxState_SANDBOX_READY {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s is stopped", b.rec.ID)
	}
	if len(req.GetPort()) > streaming.MaxPorts {
		return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("%d ports are requested: the maximum is %d",
			len(req.GetPort()), streaming.MaxPorts))
	}
	at, err := s.streams.url("/portforward/", req)
	return &criv1.PortForwardResponse{Url: at}, err
}

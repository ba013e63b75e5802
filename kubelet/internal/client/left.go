package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
)

// leftFlag is for commands that show what an agent has left if none runs.
func (c *call) leftFlag(fs *pflag.FlagSet) {
	c.showsLeft = true
	c.endpointFlag(fs)
}

func (c *call) endpointFlag(fs *pflag.FlagSet) {
	fs.StringVar(&c.endpoint, "container-runtime-endpoint", "", "CRI socket of the pods to show if no agent runs "+
		"(default: that of the agent that ran last)")
}

// useLeft has the client answer from what the agent has left, if the error means that none runs. It reports whether it
// does.
func (c *call) useLeft(ctx context.Context, noAgent error) bool {
	if !c.showsLeft || c.Left == nil || c.follow || c.listFlags.watch || ctx.Err() != nil ||
		!errors.Is(noAgent, control.ErrNoAgent) || errors.Is(noAgent, fs.ErrPermission) {
		return false
	}
	handler, text, err := c.Left(ctx, c.rootDir, c.endpoint)
	if err != nil {
		return false
	}
	fmt.Fprintf(c.Err, "No agent answers on %s. This is what it has left on the disk. %s\n\n", c.client.socket, text)
	c.client.Transport, c.usedLeft = inProcess{handler}, true
	return true
}

// inProcess sends requests to a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	a := &answer{out: out, header: http.Header{}, began: make(chan int, 1)} // the one status
	req = req.Clone(req.Context())
	req.Body = http.NoBody
	go func() {
		defer func() {
			if recover() != nil { // [http.ErrAbortHandler], or a defect, maybe before the status is written
				a.WriteHeader(http.StatusInternalServerError)
				_ = out.CloseWithError(io.ErrUnexpectedEOF)
			}
		}()
		t.handler.ServeHTTP(a, req)
		a.WriteHeader(http.StatusOK)
		_ = out.Close()
	}()
	select {
	case code := <-a.began:
		return &http.Response{StatusCode: code, Header: a.header, Body: body, Request: req}, nil
	case <-req.Context().Done():
		_ = body.Close()
		return nil, context.Cause(req.Context())
	}
}

// answer is an [http.ResponseWriter] and an [http.Flusher].
type answer struct {
	out    *io.PipeWriter
	header http.Header
	began  chan int
	wrote  bool
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(code int) {
	if !a.wrote {
		a.wrote = true
		a.began <- code
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.out.Write(b)
}

// Flush implements [http.Flusher].
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

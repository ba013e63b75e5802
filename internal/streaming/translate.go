package streaming

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

const (
	// pingPeriod is the time between two pings to the server of a runtime in a session whose client uses
	// another protocol: the server would take a session without traffic for dead. The pings of
	// other clients pass through.
	pingPeriod = time.Minute
	// maxStatus is the maximum of the status of a runtime that is passed on, in bytes.
	maxStatus = 64 << 10
)

// Unpack passes the bytes of a client of the tunnel to a connection of SPDY, and back.
func (s *Session) Unpack(w http.ResponseWriter, req *http.Request, conn io.ReadWriter) {
	s.tunnel(w, req, func(ws *websocket.Conn) {
		ended := make(chan struct{}, 2) // one value of each direction
		go func() { _, _ = io.Copy(conn, ws); ended <- struct{}{} }()
		go func() { _, _ = io.Copy(ws, conn); ended <- struct{}{} }()
		<-ended // SPDY ends its streams within the connection
	})
}

// Translate connects a WebSocket client of version 5 of the protocol, which container runtimes do not
// have, with a connection to one by SPDY and version 4. requested are the streams of the client, and opts
// those of the process. If it returns an error, the request is not answered.
func (s *Session) Translate(w http.ResponseWriter, req *http.Request, conn net.Conn, requested, opts Requested) error {
	remote, err := spdy.NewClientConnectionWithPings(newSPDYConn(conn, spdyFrames), pingPeriod)
	if err != nil {
		return err
	}
	defer remote.Close()
	// Without this, a stream that is not read any more holds up the others.
	stop := context.AfterFunc(s.ctx, func() { _ = remote.Close() })
	defer stop()
	streams := map[string]httpstream.Stream{}
	for _, stream := range []struct {
		kind      string
		requested bool
	}{{typeError, true}, {typeStdin, opts.Stdin}, {typeStdout, opts.Stdout}, {typeStderr, opts.Stderr},
		{typeResize, opts.TTY}} {
		if !stream.requested {
			continue
		}
		header := http.Header{}
		header.Set(streamType, stream.kind)
		opened, err := remote.CreateStream(header)
		if err != nil {
			return fmt.Errorf("the container runtime has not opened the stream of %s: %w", stream.kind, err)
		}
		streams[stream.kind] = opened
	}
	// The stream of the error is not closed, although nothing is written to it: a frame that reaches
	// the runtime after a short command has ended resets the connection, and takes with it what was
	// not yet read.
	c, err := s.acceptWebSocket(w, req, requested, subprotocol.V5)
	if err != nil {
		s.notAccepted(err)
		return nil
	}
	defer c.close()
	if status := relay(c, streams); len(status) > 0 {
		_, _ = c.status.Write(status)
	} else if s.ctx.Err() == nil {
		c.writeStatus(0, errors.New("the connection to the container runtime has ended before the stream"))
	}
	s.over.Store(true)
	return nil
}

// relay copies between the streams of a client and those of a runtime until the runtime has
// ended them. It returns the status, which is empty if there was none.
func relay(c *client, streams map[string]httpstream.Stream) (status []byte) {
	// The copies to the runtime end with the streams of the client.
	if c.stdin != nil {
		go func() {
			_, _ = io.Copy(streams[typeStdin], c.stdin)
			_ = streams[typeStdin].Close()
		}()
	}
	if c.sizes != nil {
		go func() {
			if stream := streams[typeResize]; stream != nil {
				enc := json.NewEncoder(stream)
				readSizes(c.sizes, func(size Size) error { return enc.Encode(size) })
				return
			}
			_, _ = io.Copy(io.Discard, c.sizes) // no terminal
		}()
	}
	var outputs sync.WaitGroup
	if c.stdout != nil {
		outputs.Go(func() { _, _ = io.Copy(c.stdout, streams[typeStdout]) })
	}
	if c.stderr != nil && streams[typeStderr] != nil {
		outputs.Go(func() { _, _ = io.Copy(c.stderr, streams[typeStderr]) })
	}
	status, _ = io.ReadAll(io.LimitReader(streams[typeError], maxStatus))
	outputs.Wait()
	return status
}

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// follow follows a log.
func (s *standalone) follow(t *testing.T, path string) (log *screen, ended <-chan error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	require.NoError(t, err)
	resp, err := s.http.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	log = &screen{}
	done := make(chan error, 1) // one value, of the one goroutine
	go func() {
		_, err := io.Copy(log, resp.Body)
		_ = resp.Body.Close()
		done <- err
	}()
	return log, done, cancel
}

// forward is a session of port-forward.
type forward struct {
	conn  net.Conn     // through it
	ended <-chan error // one value
	stop  func()
}

// forward forwards a port of the pod through the gateway, as kubectl does: by SPDY, or by SPDY in a
// WebSocket. It connects to it once.
func (s *standalone) forward(t *testing.T, via *Gateway, webSocket bool, path string, port int) *forward {
	t.Helper()
	u := &url.URL{Scheme: "https", Host: via.Addr, Path: path}
	var dialer httpstream.Dialer
	var err error
	if webSocket {
		dialer, err = portforward.NewSPDYOverWebsocketDialerForStreaming(u, s.config)
		require.NoError(t, err)
	} else {
		transport, upgrader, err := spdy.RoundTripperFor(s.config)
		require.NoError(t, err)
		dialer = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	}
	ready, stop := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewForStreaming(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready,
		io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err, "port-forward")
	}
	ports, err := f.GetPorts()
	require.NoError(t, err)
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &forward{conn, ended, func() { close(stop) }}
}

// echoes sends a text, and waits until it has come back.
func (f *forward) echoes(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, f.conn.SetDeadline(time.Now().Add(eventually)))
	_, err := io.WriteString(f.conn, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(f.conn, got)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

// end waits for the end of the session, and returns its error.
func (f *forward) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-f.ended:
		_ = f.conn.Close()
		return err
	case <-time.After(eventually):
		t.Fatal("port-forward does not end")
		return nil
	}
}

// sessionsOfRestart are sessions of all kinds, and a log that is followed.
type sessionsOfRestart struct {
	*standalone
	via  *Gateway
	name string // of the pod
}

// openAll opens a session of each kind, in which something has gone to the container and back.
func (s *sessionsOfRestart) openAll(t *testing.T) (streams []*session, forwards []*forward) {
	t.Helper()
	at := func(kind, container string) string { return "/" + kind + "/default/" + s.name + "/" + container }
	for _, webSocket := range []bool{true, false} {
		cat := s.open(t, s.via, webSocket, at("exec", "web"), commanded(false, "cat"), "typed\n")
		shell := s.open(t, s.via, webSocket, at("exec", "web"), commanded(true, "sh"), "echo $((6*7))\n")
		lines := s.open(t, s.via, webSocket, at("attach", "web"), attached(false), "")
		terminal := s.open(t, s.via, webSocket, at("attach", "terminal"), attached(true), "")
		cat.shows(t, "typed\n")
		shell.shows(t, "42")
		lines.shows(t, "tick")
		terminal.shows(t, "tick")
		streams = append(streams, cat, shell, lines, terminal)
		f := s.forward(t, s.via, webSocket, "/portForward/default/"+s.name, 8080)
		f.echoes(t, "through the port")
		forwards = append(forwards, f)
	}
	return streams, forwards
}

// leaveAll ends the sessions from the side of the clients.
func leaveAll(t *testing.T, streams []*session, forwards []*forward) {
	t.Helper()
	for _, x := range streams {
		x.leave()
		require.ErrorIs(t, x.end(t), context.Canceled, x.what)
	}
	for _, f := range forwards {
		f.stop()
		require.NoError(t, f.end(t))
	}
}

// TestSessionsWhileRuntimeRestarts kills containerd, and stops it, while clients have sessions through
// the port. The sessions end, with an error where the protocol has one, and nothing of them stays in
// the agent. A client that follows a log receives what comes after the restart. Then new sessions work.
func TestSessionsWhileRuntimeRestarts(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	agent := newStandalone(t,
		func(config map[string]any) *Agent { return c.StartAgent(t, AgentOptions{Config: config}) })
	const ticks = "trap 'exit 0' TERM; while :; do echo tick; sleep 0.2; done"
	web, terminal := Sh("web", "nc -ll -p 8080 -e cat & "+ticks), Sh("terminal", ticks)
	web.Stdin, terminal.Stdin, terminal.TTY = true, true, true
	pod := MakePod("sessions", Main(web, terminal))
	agent.Put(t, pod)
	agent.Await(t, pod, within, Running)
	s := &sessionsOfRestart{agent, agent.gateway(t), FullName(pod)}
	logs := "/containerLogs/default/" + s.name + "/web?follow=true"

	streams, forwards := s.openAll(t) // what the first ones make stays
	_, ended, stop := s.follow(t, logs)
	leaveAll(t, streams, forwards)
	stop()
	<-ended
	before := s.atRest(t)
	was := s.Await(t, pod, within, Running)

	for _, end := range []struct {
		name string
		do   func(testing.TB)
	}{{"killed", c.Kill}, {"stopped", c.Stop}} {
		t.Run(end.name, func(t *testing.T) {
			streams, forwards := s.openAll(t)
			log, ended, stop := s.follow(t, logs)
			log.shows(t, "tick\n")
			open, err := s.holds(t)
			require.NoError(t, err)
			t.Logf("with the sessions it holds %+v", open.count())

			end.do(t)
			gone := time.Now()
			for _, x := range streams {
				err := x.end(t)
				if x.webSocket { // a client of SPDY sees only the end of the connection, with kubelet too
					assert.ErrorContains(t, err, "the connection to the container runtime has ended", x.what)
				}
			}
			for _, f := range forwards {
				assert.ErrorIs(t, f.end(t), portforward.ErrLostConnectionToPod)
			}
			t.Logf("the sessions have ended %v after containerd", time.Since(gone))
			refused := s.gateway(t)
			for _, webSocket := range []bool{true, false} {
				x := s.open(t, refused, webSocket, "/exec/default/"+s.name+"/web", commanded(false, "true"), "")
				assert.ErrorContains(t, x.end(t), "container runtime unavailable", x.what)
			}
			refused.Cut() // a refused client of SPDY leaves its connection open, which the port would close after 90 s

			c.Start(t)
			back := time.Now()
			seen := log.String()
			log.shows(t, seen+"tick\n")
			select {
			case err := <-ended:
				t.Fatalf("the log has ended: %v", err)
			default:
			}
			stop()
			<-ended
			followed := time.Since(back)
			Eventually(t, eventually, "a session with the new containerd", func() error {
				x := s.open(t, s.via, true, "/exec/default/"+s.name+"/web", commanded(false, "true"), "")
				return x.end(t)
			})
			streams, forwards = s.openAll(t)
			leaveAll(t, streams, forwards)
			served := time.Since(back)
			s.awaitRest(t, before)
			t.Logf("after containerd is back, the log goes on after %v, sessions were served after %v, nothing is "+
				"left after %v", followed, served, time.Since(back))
			adopted(t, was, s.Await(t, pod, within, Running))
		})
	}
}

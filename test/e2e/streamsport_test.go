package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/remotecommand"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// gateway returns a gateway to the port with TLS.
func (s *standalone) gateway(t *testing.T) *Gateway {
	t.Helper()
	return NewGateway(t, func(ctx context.Context) (net.Conn, error) {
		return s.DialContext(ctx, "tcp", strings.TrimPrefix(s.base, "https://"))
	})
}

// session is a session of a client of exec or attach.
type session struct {
	what      string
	webSocket bool
	keys      *io.PipeWriter // what the client types
	out       screen         // what it receives
	leave     context.CancelFunc
	ended     chan struct{} // closed when it has ended; err is set before
	err       error
}

// open begins a session through the gateway, by WebSocket version 5 or by SPDY. The client types a
// text first.
func (s *standalone) open(t *testing.T, via *Gateway, webSocket bool, path string, query url.Values,
	first string) *session {
	t.Helper()
	tty := query.Get("tty") != ""
	address := &url.URL{Scheme: "https", Host: via.Addr, Path: path, RawQuery: query.Encode()}
	var e remotecommand.Executor
	var err error
	what := "SPDY"
	if webSocket {
		what = "WebSocket"
		e, err = remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, address.String())
	} else {
		e, err = remotecommand.NewSPDYExecutor(s.config, http.MethodPost, address)
	}
	require.NoError(t, err)
	in, keys := io.Pipe()
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard())) // clients log each end
	x := &session{what: fmt.Sprintf("%s by %s, terminal %v", path, what, tty), webSocket: webSocket, keys: keys,
		leave: cancel, ended: make(chan struct{})}
	go func() {
		defer close(x.ended)
		defer in.Close() // nobody takes what is typed any more
		x.err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: io.MultiReader(strings.NewReader(first),
			in), Stdout: &x.out, Tty: tty})
	}()
	t.Cleanup(cancel)
	return x
}

// shows waits until the output has the text.
func (x *session) shows(t *testing.T, text string) {
	t.Helper()
	Eventually(t, eventually, x.what+" shows "+text, func() error {
		got := x.out.String()
		if strings.Contains(got, text) {
			return nil
		}
		select {
		case <-x.ended:
			t.Fatalf("%s has ended: %v; it shows %q, not %q", x.what, x.err, got, text)
		default:
		}
		return fmt.Errorf("it shows %q", got)
	})
}

// end waits for the end of the session, and returns its error.
func (x *session) end(t *testing.T) error {
	t.Helper()
	select {
	case <-x.ended:
	case <-time.After(eventually):
		t.Fatalf("%s does not end", x.what)
	}
	return x.err
}

// commanded returns the query of exec for a command.
func commanded(tty bool, cmd ...string) url.Values {
	query := attached(tty)
	query["command"] = cmd
	return query
}

// attached returns the query of attach.
func attached(tty bool) url.Values {
	query := url.Values{"input": {"1"}, "output": {"1"}}
	if tty {
		query.Set("tty", "1")
	}
	return query
}

// TestManySessions opens 200 sessions. A third of the clients end their input, a third disconnect, and
// the connections of a third are reset. Nothing of them stays in the agent.
func TestManySessions(t *testing.T) {
	t.Parallel()
	t.Run("containerd", func(t *testing.T) {
		t.Parallel()
		c := NewCluster(t)
		c.Preload(t, "pause:1", "busybox:1")
		testManySessions(t,
			newStandalone(t,
				func(config map[string]any) *Agent { return c.StartAgent(t, AgentOptions{Config: config}) }))
	})
	t.Run("processes", func(t *testing.T) { // whose streams the agent serves itself
		t.Parallel()
		testManySessions(t,
			newStandalone(t,
				func(config map[string]any) *Agent { return StartProcessAgent(t, AgentOptions{Config: config}) }))
	})
}

func testManySessions(t *testing.T, s *standalone) {
	const (
		many   = 200
		starts = 16 // at once: the start of a command takes runc some memory
	)
	pod := MakePod("web", Main(Sh("c", Forever)))
	s.Put(t, pod)
	s.Await(t, pod, within, Running)
	path := "/exec/default/" + FullName(pod) + "/c"
	stay, vanish := s.gateway(t), s.gateway(t)
	cat := commanded(false, "cat")
	echo := func(webSocket bool) {
		t.Helper()
		x := s.open(t, stay, webSocket, path, cat, "one\n")
		x.shows(t, "one\n")
		require.NoError(t, x.keys.Close())
		require.NoError(t, x.end(t))
	}
	both := []bool{true, false}
	for _, webSocket := range both { // what the first ones make stays
		echo(webSocket)
	}
	before := s.atRest(t)

	var all []*session
	text := func(i int) string { return fmt.Sprintf("session %d\n", i) }
	for i := range many {
		via := stay
		if i%3 == 0 {
			via = vanish
		}
		all = append(all, s.open(t, via, i%2 == 0, path, cat, text(i)))
		if j := i - starts; j >= 0 {
			all[j].shows(t, text(j))
		}
	}
	for i, x := range all {
		x.shows(t, text(i))
	}
	open, err := s.holds(t)
	require.NoError(t, err)
	t.Logf("with %d sessions it holds %+v", many, open.count())
	assert.GreaterOrEqual(t, open.count().sockets, before.count().sockets+many, "all are open at once")

	vanish.Cut()
	for i, x := range all {
		switch i % 3 {
		case 1:
			x.leave()
		case 2:
			require.NoError(t, x.keys.Close())
		}
	}
	for i, x := range all {
		switch err := x.end(t); i % 3 {
		case 1:
			assert.ErrorIs(t, err, context.Canceled, x.what)
		case 2:
			assert.NoError(t, err, x.what)
			assert.Equal(t, text(i), x.out.String())
		}
	}
	s.awaitRest(t, before)
	for _, webSocket := range both {
		echo(webSocket)
	}
	assert.False(t, s.Exited())
}

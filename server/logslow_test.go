package server_test

import (
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server"
)

// opened returns how often this process has the file open.
func opened(t *testing.T, path string) (n int) {
	t.Helper()
	open := descriptors()
	if len(open) == 0 {
		t.Skip("needs /proc")
	}
	for _, to := range open {
		if to == path {
			n++
		}
	}
	return n
}

// heap returns the memory that is in use, in bytes.
func heap() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Clients of a log that never read cost little memory, and lose their connection when their time to
// receive is over. Their files are closed then.
func TestClientsOfALogThatNeverRead(t *testing.T) {
	const clients = 20
	for name, tt := range map[string]struct {
		patience time.Duration
		trust    func(http.Handler) http.Handler
	}{
		"trusted":     {4 * time.Hour, server.Trusted},
		"not trusted": {30 * time.Second, func(h http.Handler) http.Handler { return h }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
				n := newNode(t)
				log := n.start("main")
				writeLog(t, log, 32<<20)
				l := newPipes("127.0.0.1")
				stop := serve(t, l, tt.trust(server.Control(n, server.Options{})))
				before, conns := heap(), []net.Conn{}
				for range clients {
					c := l.dial()
					ask(t, c, logPath, "localhost")
					conns = append(conns, c)
				}
				synctest.Wait()
				assert.Equal(t, clients, opened(t, log))
				assert.Less(t, (heap()-before)/clients, int64(512<<10), "bytes for each")
				time.Sleep(tt.patience - time.Second) // virtual
				synctest.Wait()
				assert.Equal(t, clients, opened(t, log))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				assert.Zero(t, opened(t, log))
				for _, c := range conns {
					_, err := io.ReadAll(c)
					require.NoError(t, err, "the server has closed it")
				}
				stop()
			})
		})
	}
}

// The same is so for one that follows, with the buffers of real sockets.
func TestAFollowerThatNeverReads(t *testing.T) {
	n := newNode(t)
	log := n.start("main")
	writeLog(t, log, 64<<20)
	h, ended := server.Control(n, server.Options{}), make(chan struct{})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	begun := make(chan *http.ResponseController, 1)
	stop := serve(t, l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(ended)
		begun <- http.NewResponseController(w)
		h.ServeHTTP(w, req)
	}))
	before := heap()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	ask(t, c, logPath+"?follow=true", "localhost")
	require.Eventually(t, func() bool { return opened(t, log) > 0 }, time.Minute, time.Millisecond)
	assert.Less(t, heap()-before, int64(2<<20), "bytes")
	require.NoError(t, (<-begun).SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the handler goes on")
	}
	assert.Zero(t, opened(t, log))
	require.NoError(t, c.Close())
	stop()
}

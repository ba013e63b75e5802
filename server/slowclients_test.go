package server_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Clients that send a request for whatever the port serves, and never read the answer, cost little memory. They
// delay no other client, and lose their connection when their time to receive is over.
func TestClientsThatNeverRead(t *testing.T) {
	const clients = 20
	for _, path := range []string{
		"/healthz", "/healthz?verbose", "/pods", "/metrics", "/configz", "/flagz", "/statusz", "/runningpods/", "/logs/", "/stats/summary", "/debug/pprof/",
		"/containerLogs/default/web/main", "/exec/default/web/main?command=true&output=1", "/none",
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
				l := newPipes("127.0.0.1")
				stop := serve(t, l, kubelet(t, allOptions()))
				before, conns := heap(), []net.Conn{}
				for range clients {
					c := l.dial()
					ask(t, c, path, "localhost")
					conns = append(conns, c)
				}
				synctest.Wait()
				assert.Less(t, (heap()-before)/clients, int64(512<<10), "bytes for each")
				fast := l.dial()
				ask(t, fast, path, "localhost")
				_, err := io.Copy(io.Discard, answer(t, fast).Body)
				require.NoError(t, err)
				require.NoError(t, fast.Close())
				time.Sleep(4*time.Hour + time.Minute) // virtual
				synctest.Wait()
				for _, c := range conns {
					_, err := io.ReadAll(c)
					require.NoError(t, err, "the server has closed it")
				}
				stop()
			})
		})
	}
}

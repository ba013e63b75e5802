package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

// Clients that send a request for whatever the port serves, and never read the answer, cost little memory. They
// delay no other client, and lose their connection when their time to receive is over.
func TestClientsThatNeverRead(t *testing.T) {
	const clients = 20
	for _, path := range []string{
		"/healthz", "/healthz?verbose", "/pods", "/metrics", "/configz", "/flagz", "/statusz", "/runningpods/",
		"/logs/", "/stats/summary", "/debug/pprof/",
		"/containerLogs/default/web/main", "/exec/default/web/main?command=true&output=1", "/debug/history/default/web",
		"/none",
		"POST /run/default/web/main?cmd=yes", "POST /checkpoint/default/web/main",
	} {
		request := func(t *testing.T, c net.Conn) {
			if target, post := strings.CutPrefix(path, "POST "); post {
				_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", target)
				require.NoError(t, err)
				return
			}
			ask(t, c, path, "localhost")
		}
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
				l := newPipes("127.0.0.1")
				n, opts := newNode(t), allOptions()
				n.start("main")
				n.exec = func(context.Context, runtime.ContainerID, []string) (runtime.ExecResult, error) {
					return runtime.ExecResult{Output: make([]byte, 128<<10)}, nil
				}
				opts.Checkpoint = server.Checkpoint(n, inert{}, filepath.Join(n.dir, "checkpoints"))
				opts.History = server.History(n,
					server.Histories[line]{Entries: func(types.UID) []line { return make([]line, 10_000) }})
				stop := serve(t, l, server.Kubelet(n, opts))
				before, conns := heap(), []net.Conn{}
				for range clients {
					c := l.dial()
					request(t, c)
					conns = append(conns, c)
				}
				synctest.Wait()
				assert.Less(t, (heap()-before)/clients, int64(512<<10), "bytes for each")
				fast := l.dial()
				request(t, fast)
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

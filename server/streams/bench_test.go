package streams_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// BenchmarkOverhead runs the same command on the runtime's own server of streams and through
// the handlers, one after the other in each iteration, and reports the difference of the
// medians.
func BenchmarkOverhead(b *testing.B) {
	for _, websocket := range []bool{false, true} {
		b.Run(fmt.Sprintf("websocket=%t", websocket), func(b *testing.B) {
			m := &machine{}
			rt := locator{serveElsewhere(b, m)}
			w := &world{m: m}
			w.serve(b, rt, streams.Options{})
			once := func(e remotecommand.Executor) time.Duration {
				var out bytes.Buffer
				began := time.Now()
				require.NoError(b, e.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: &out,
					Stderr: io.Discard}))
				took := time.Since(began)
				require.NotZero(b, out.Len())
				return took
			}
			var direct, through []time.Duration
			for b.Loop() {
				at, err := rt.ExecURL(b.Context(), runtime.ContainerID{ID: "main"}, []string{"echo"},
					runtime.StreamOptions{Stdout: true, Stderr: true})
				require.NoError(b, err)
				direct = append(direct, once(executor(b, false, at)))
				query := url.Values{"command": {"echo"}, "output": {"1"}, "error": {"1"}}
				through = append(through, once(executor(b, websocket, w.url(b, "/exec/default/web/main", query))))
			}
			slices.Sort(direct)
			slices.Sort(through)
			d, th := direct[len(direct)/2], through[len(through)/2]
			b.ReportMetric(float64(d.Microseconds())/1000, "direct-ms")
			b.ReportMetric(float64(th.Microseconds())/1000, "through-ms")
			b.ReportMetric(float64((th-d).Microseconds())/1000, "overhead-ms")
			b.ReportMetric(float64(th)/float64(d), "ratio")
		})
	}
}

var _ http.Handler = (*streams.Handlers)(nil)

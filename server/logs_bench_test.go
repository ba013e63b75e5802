package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server"
)

// BenchmarkLogThroughTLS reads a log of 1 GB (32 MB with -short) through the port, with
// authorization, and for comparison the same file as it is, which is "cat" through TLS. It reports
// the ratio of the times: 1 is as fast as cat, 0.7 is the limit.
func BenchmarkLogThroughTLS(b *testing.B) {
	size := 1 << 30
	if testing.Short() {
		size = 32 << 20
	}
	n := newNode(b)
	path := n.start("main")
	writeLog(b, path, size)
	mux := http.NewServeMux()
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", server.ContainerLogs(n, server.Options{}))
	mux.HandleFunc("GET /cat", func(w http.ResponseWriter, _ *http.Request) {
		f, err := os.Open(path)
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{w}, f, make([]byte, 128<<10)) // the size of the buffer of cat
			_ = f.Close()
		}
		if err != nil {
			panic(err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	stop := serveTLS(b, l, newGuard(b).Protect(server.Trusted(mux)), server.TLSOptions{})
	defer stop()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		Certificates: []tls.Certificate{*newCertificate(b, "alice")}}}}
	defer client.CloseIdleConnections()
	read := func(path string) time.Duration {
		began := time.Now()
		resp, err := client.Get("https://" + l.Addr().String() + path)
		require.NoError(b, err)
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 128<<10))
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
		return time.Since(began)
	}
	for _, query := range []string{"", "?timestamps=true", "?sinceTime=2026-01-02T03:04:05Z", "?stream=Stderr"} {
		b.Run("query="+query, func(b *testing.B) {
			var cat, log time.Duration
			read("/cat") // into the page cache
			for b.Loop() {
				cat += read("/cat")
				log += read(logPath + query)
			}
			b.ReportMetric(float64(cat)/float64(log), "of-cat's-speed")
			b.ReportMetric(float64(size)*float64(b.N)/log.Seconds()/1e6, "MB/s")
		})
	}
}

// writeLog writes a log of about size bytes, with lines as long as those of programs.
func writeLog(tb testing.TB, path string, size int) {
	tb.Helper()
	f, err := os.Create(path)
	require.NoError(tb, err)
	var block strings.Builder
	for i := range 10000 {
		stream := "stdout"
		if i%10 == 0 {
			stream = "stderr"
		}
		fmt.Fprintf(&block, "2026-01-02T03:04:05.%09dZ %s F I0102 03:04:05.000000       1 controller.go:%d] "+
			"\"Synced\" key=\"default/web-%d\"\n", i*99991%1000000000, stream, i%1000, i)
	}
	for written := 0; written < size; written += block.Len() {
		_, err := f.WriteString(block.String())
		require.NoError(tb, err)
	}
	require.NoError(tb, f.Close())
}

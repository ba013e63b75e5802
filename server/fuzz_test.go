package server_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

// No request makes a handler panic, except as documented, or run forever.
func FuzzRequest(f *testing.F) {
	for _, request := range []string{
		"GET /pods HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /containerLogs/default/web/main?tailLines=2&timestamps=true HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /containerLogs/default/web/u1/main?previous=1&follow=true HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /run/default/web/main?cmd=a+b&command=c HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"GET /healthz HTTP/1.0\r\n\r\n",
	} {
		f.Add([]byte(request), []byte("2026-01-02T03:04:05.000000006Z stdout F one\n"))
	}
	f.Fuzz(func(t *testing.T, raw, log []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		n := newNode(t)
		n.exec = func(context.Context, runtime.ContainerID, []string) (runtime.ExecResult, error) {
			return runtime.ExecResult{Output: []byte("output")}, nil
		}
		n.pod.Spec.RestartPolicy = v1.RestartPolicyNever
		writeFile(t, n.start("main"), log)
		n.exit(0) // so that a log that is followed ends
		defer func() {
			if r := recover(); r != nil && r != http.ErrAbortHandler {
				panic(r)
			}
		}()
		rec := httptest.NewRecorder()
		server.Control(n, n, server.Options{}).ServeHTTP(rec, req.WithContext(t.Context()))
		_, _ = io.Copy(io.Discard, rec.Body)
	})
}

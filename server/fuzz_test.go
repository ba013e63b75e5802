package server_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// inert is a runtime whose sessions and checkpoints end at once.
type inert struct{}

func (inert) ExecStream(context.Context, runtime.ContainerID, []string, runtime.Streams) (int32, error) {
	return 0, nil
}
func (inert) AttachStream(context.Context, runtime.ContainerID, runtime.Streams) error { return nil }
func (inert) ForwardPort(context.Context, string, int32, io.ReadWriteCloser) error     { return nil }
func (inert) CheckpointContainer(context.Context, runtime.ContainerID, string, time.Duration) error {
	return nil
}
func (inert) Summary(context.Context, bool) ([]byte, error) { return []byte("{}"), nil }

// everything returns options with a handler for each path.
func everything(n *node) server.Options {
	opts := allOptions()
	page := opts.Metrics
	opts.Profiles = page // those of Go take as long as a request likes
	opts.ResourceMetrics, opts.CadvisorMetrics, opts.SLIMetrics, opts.Stats = page, page, page, inert{}.Summary
	opts.Streams = streams.New(n, inert{}, streams.Options{SetupTimeout: time.Second})
	opts.Logs = server.NodeLogs(server.NodeLogsOptions{Dir: n.dir, Query: true,
		Journal: func(_ context.Context, args []string, w io.Writer) error {
			_, err := io.WriteString(w, strings.Join(args, " "))
			return err
		}})
	opts.Checkpoint = server.Checkpoint(n, inert{}, filepath.Join(n.dir, "checkpoints"))
	opts.History = server.History(n, server.Histories[line]{Entries: func(types.UID) []line { return make([]line, 2) }})
	opts.SetVerbosity = func(level string) error {
		_, err := strconv.Atoi(level)
		return err
	}
	return opts
}

// No request makes a handler panic, except as documented, or run forever.
func FuzzRequest(f *testing.F) {
	for _, request := range []string{
		"GET /pods HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /containerLogs/default/web/main?tailLines=2&timestamps=true HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /containerLogs/default/web/u1/main?previous=1&follow=true HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /run/default/web/main?cmd=a+b&command=c HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"GET /healthz HTTP/1.0\r\n\r\n",
		"GET /healthz?exclude=ping&verbose HTTP/1.0\r\n\r\n",
		"GET /logs/a/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /logs/?query=kubelet&sinceTime=2026-01-02T03:04:05Z&tailLines=3&pattern=a HTTP/1.1\r\nHost: " +
			"a\r\nAccept-Encoding: gzip\r\n\r\n",
		"POST /checkpoint/default/web/main?timeout=9 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"GET /debug/history/default/web/u1?output=json HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /stats/summary?only_cpu_and_memory=true HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n",
		"PUT /debug/flags/v HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n4",
		"GET /flagz HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n",
		"GET /exec/default/web/main?command=a&output=1&tty=1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " +
			"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			"AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		"POST /portForward/default/web?port=80&port=81 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " +
			"SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
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
		server.Kubelet(n, everything(n)).ServeHTTP(rec, req.WithContext(t.Context()))
		_, _ = io.Copy(io.Discard, rec.Body)
	})
}

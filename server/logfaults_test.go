package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/server"
)

// A log is rotated ten thousand times while it is followed: no line is lost, and no file stays
// open.
func TestFollowAcrossManyRotations(t *testing.T) {
	n := newNode(t)
	c := n.serve(t)
	log := n.start("main")
	appendLog(t, log, "F begin")
	r := follow(t, c, "main", "")
	r.expect("begin\n")
	files := len(descriptors())
	for i := range 1000 {
		require.NoError(t, os.Rename(log, log+".old"))
		appendLog(t, log+".old", fmt.Sprintf("F old %d", i))
		ago := time.Now().Add(-time.Minute) // so that the reader does not wait for lines that come late
		require.NoError(t, os.Chtimes(log+".old", ago, ago))
		appendLog(t, log, fmt.Sprintf("F new %d", i))
		r.expect(fmt.Sprintf("old %d\nnew %d\n", i, i))
	}
	assert.LessOrEqual(t, len(descriptors()), files+2)
	n.exit(0)
	r.expectEnd()
}

func TestFollowOfALogThatDisappears(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, log string){
		"removed":   func(t *testing.T, log string) { require.NoError(t, os.Remove(log)) },
		"truncated": func(t *testing.T, log string) { require.NoError(t, os.Truncate(log, 0)) },
		"a link in its place": func(t *testing.T, log string) {
			writeFile(t, log+".secret", []byte("2026-01-02T03:04:05Z stdout F hush\n"))
			require.NoError(t, os.Remove(log))
			require.NoError(t, os.Symlink(log+".secret", log))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c := n.serve(t)
			log := n.start("main")
			appendLog(t, log, "F one")
			r := follow(t, c, "main", "")
			r.expect("one\n")
			harm(t, log)
			if name != "truncated" {
				_ = os.Remove(log)
			}
			appendLog(t, log, "F 2")
			r.expect("2\n")
			require.NoError(t, os.RemoveAll(log))
			n.exit(0)
			r.expectEnd()
		})
	}
	t.Run("with its directory", func(t *testing.T) {
		n := newNode(t)
		c := n.serve(t)
		n.start("main")
		log := filepath.Join(n.dir, "sub", "0.log")
		n.mu.Lock()
		n.seen.Containers[0].LogPath = log
		n.mu.Unlock()
		require.NoError(t, os.Mkdir(filepath.Dir(log), 0o755))
		appendLog(t, log, "F one")
		r := follow(t, c, "main", "")
		r.expect("one\n")
		require.NoError(t, os.RemoveAll(filepath.Dir(log)))
		n.exit(0)
		r.expectEnd()
	})
}

// A line of 100 MB is skipped, in little memory.
func TestAHugeLine(t *testing.T) {
	n := newNode(t)
	log := n.start("main")
	f, err := os.Create(log)
	require.NoError(t, err)
	_, err = f.WriteString("2026-01-02T03:04:05Z stdout F ")
	require.NoError(t, err)
	for range 100 {
		_, err = f.WriteString(strings.Repeat("x", 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	appendLog(t, log, "F end of the huge line", "F short")
	h := server.Control(n, server.Options{})
	_, body := get(t, h, logPath)
	assert.Equal(t, "short\n", body)
	_, body = get(t, h, logPath+"?tailLines=1")
	assert.Equal(t, "short\n", body)
}

// Followers of an idle log take no CPU time and little memory: nothing is read before
// something is written.
func TestFollowersOfAnIdleLog(t *testing.T) {
	n := newNode(t)
	c := n.serve(t)
	log := n.start("main")
	writeLog(t, log, 1<<20)
	readers := make([]reader, 50)
	for i := range readers {
		readers[i] = follow(t, c, "main", "")
		_, err := io.CopyN(io.Discard, readers[i].body, 400<<10)
		require.NoError(t, err)
	}
	appendLog(t, log, "F mark")
	for _, r := range readers {
		readUntil(t, r.body, "mark\n")
	}
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	appendLog(t, log, "F end")
	for _, r := range readers {
		r.expect("end\n")
	}
	goruntime.GC()
	goruntime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(2<<20), "of 50 readers")
	n.exit(0)
	for _, r := range readers {
		r.expectEnd()
	}
}

// readUntil reads until the text ends with want.
func readUntil(t *testing.T, r io.Reader, want string) {
	t.Helper()
	var tail []byte
	buf := make([]byte, 64<<10)
	for !strings.HasSuffix(string(tail), want) {
		k, err := r.Read(buf)
		require.NoError(t, err)
		tail = append(tail, buf[:k]...)
		tail = tail[max(0, len(tail)-len(want)):]
	}
}

// A client that does not read holds up no other one, and costs no more than the buffers of
// its connection.
func TestASlowClientOfALog(t *testing.T) {
	n := newNode(t)
	c := n.serve(t)
	log := n.start("main")
	writeLog(t, log, 32<<20)
	slow := follow(t, c, "main", "")
	quick := follow(t, c, "main", "&tailLines=0")
	appendLog(t, log, "F for the quick one")
	quick.expect("for the quick one\n")
	readUntil(t, slow.body, "for the quick one\n")
	n.exit(0)
	slow.expectEnd()
	quick.expectEnd()
}

// A client that disconnects ends its handler at once, also while nothing is written.
func TestAClientOfALogDisconnects(t *testing.T) {
	n := newNode(t)
	appendLog(t, n.start("main"), "F one")
	h := server.ContainerLogs(n, server.Options{})
	mux := http.NewServeMux()
	mux.Handle("/containerLogs/{namespace}/{pod}/{container}", h)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	pipe, w := io.Pipe()
	go func() {
		defer close(ended)
		mux.ServeHTTP(flusher{w}, httptest.NewRequestWithContext(ctx, http.MethodGet, logPath+"?follow=true", nil))
	}()
	readUntil(t, pipe, "one\n")
	cancel()
	<-ended
}

type flusher struct{ io.Writer }

func (flusher) Header() http.Header { return http.Header{} }
func (flusher) WriteHeader(int)     {}
func (flusher) Flush()              {}

// FuzzLogQuery has no parameters that make the handler panic, or answer with more than the
// log has.
func FuzzLogQuery(f *testing.F) {
	for _, query := range []string{
		"follow=true&tailLines=2&timestamps=1", "sinceSeconds=9223372036854775807",
		"sinceTime=2026-01-02T03:04:05Z&limitBytes=3", "stream=Stderr&previous=0", "tail=all", "follow&timestamps",
	} {
		f.Add(query, []byte("2026-01-02T03:04:05.6Z stdout P one\nx\n2026-01-02T03:04:05.6+01:00 stderr F two"))
	}
	f.Fuzz(func(t *testing.T, query string, log []byte) {
		n := newNode(t)
		n.pod.Spec.RestartPolicy = v1.RestartPolicyNever
		writeFile(t, n.start("main"), log)
		n.exit(0)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, logPath, nil)
		req.URL.RawQuery = query
		rec := httptest.NewRecorder()
		server.Control(n, server.Options{}).ServeHTTP(rec, req)
		values, _ := url.ParseQuery(query)
		if rec.Code == http.StatusOK && !values.Has("timestamps") && rec.Body.Len() > len(log)+1 {
			t.Fatalf("%q: %d bytes of a log of %d", query, rec.Body.Len(), len(log))
		}
	})
}

package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/server"
)

// descriptors returns what the open files of this process stand for: files, sockets, watches. Those
// of Go's poller, which stay, are left out. Where there is no /proc, it returns none.
func descriptors() (open []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "/proc/") && to != "anon_inode:[eventpoll]" &&
			to != "anon_inode:[eventfd]" {
			open = append(open, to)
		}
	}
	return open
}

// closesAll fails the test if, when it has ended, more files, sockets or watches are open than now.
func closesAll(t testing.TB) {
	before := descriptors()
	t.Cleanup(func() { awaitDescriptors(t, before) })
}

func awaitDescriptors(t testing.TB, before []string) {
	t.Helper()
	var now []string
	for range 6000 { // peers of sockets close theirs a little later
		if now = descriptors(); len(now) <= len(before) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("open files: %q before, %q after", before, now)
}

// awaitGoroutines waits until there are no more goroutines than before.
func awaitGoroutines(t testing.TB, before int) {
	t.Helper()
	for range 6000 {
		if goruntime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, after:\n%s", before, stacks[:goruntime.Stack(stacks, true)])
}

// client is a connection of a client that has faults.
type client struct {
	*testing.T
	raw  net.Conn
	conn *tls.Conn
}

func (c client) send(format string, args ...any) {
	_, err := fmt.Fprintf(c.conn, format, args...)
	assert.NoError(c, err)
}

// answer returns the status of the answer, of which nothing more is read.
func (c client) answer() int {
	resp, err := http.ReadResponse(bufio.NewReaderSize(c.conn, 16), nil)
	if !assert.NoError(c, err) {
		return 0
	}
	return resp.StatusCode
}

const header = " HTTP/1.1\r\nHost: node\r\n"

// Whatever clients do before they leave without a word, nothing of them is left in the server, which
// goes on: no goroutine, no file, no socket and no watch of a log.
func TestFaultsOfClientsLeaveNothing(t *testing.T) {
	const followed = "GET /containerLogs/default/web/main?follow=true" + header + "\r\n"
	for name, tt := range map[string]struct {
		behave func(c client)
		// meanwhile happens after all clients have done so.
		meanwhile func(t *testing.T, log string)
	}{
		"connects":             {behave: func(client) {}},
		"sends half a hello":   {behave: func(c client) { _, _ = c.raw.Write([]byte("\x16\x03\x01\x02\x00\x01")) }},
		"sends no TLS":         {behave: func(c client) { _, _ = c.raw.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }},
		"ends the handshake":   {behave: func(c client) { assert.NoError(c, c.conn.Handshake()) }},
		"sends half a header":  {behave: func(c client) { c.send("GET /pods HTTP/1.1\r\nHost: ") }},
		"sends huge headers":   {behave: func(c client) { c.send("GET /pods"+header+"X: %s\r\n", strings.Repeat("x", 16<<10)) }},
		"sends no body":        {behave: func(c client) { c.send("POST /run/default/web/main?cmd=true" + header + "Content-Length: 10\r\n\r\n") }},
		"reads no answer":      {behave: func(c client) { c.send("GET /pods" + header + "\r\n") }},
		"reads half an answer": {behave: func(c client) { c.send("GET /pods" + header + "\r\n"); assert.Equal(c, http.StatusOK, c.answer()) }},
		"stays idle": {behave: func(c client) {
			c.send("HEAD /healthz" + header + "\r\n")
			c.answer()
		}},
		"pauses in a log": {behave: func(c client) {
			c.send("GET /containerLogs/default/web/main" + header + "\r\n")
			assert.Equal(c, http.StatusOK, c.answer())
		}},
		"follows a log and reads nothing": {behave: func(c client) { c.send(followed); assert.Equal(c, http.StatusOK, c.answer()) }},
		"follows a log that is rotated": {
			behave: func(c client) { c.send(followed); assert.Equal(c, http.StatusOK, c.answer()) },
			meanwhile: func(t *testing.T, log string) {
				for range 5 {
					require.NoError(t, os.Rename(log, log+".old"))
					appendLog(t, log, "F new")
				}
			},
		},
		"follows a log that is removed": {
			behave:    func(c client) { c.send(followed); assert.Equal(c, http.StatusOK, c.answer()) },
			meanwhile: func(t *testing.T, log string) { require.NoError(t, os.Remove(log)) },
		},
		"follows a log that is removed with its directory": {
			behave:    func(c client) { c.send(followed); assert.Equal(c, http.StatusOK, c.answer()) },
			meanwhile: func(t *testing.T, log string) { require.NoError(t, os.RemoveAll(filepath.Dir(log))) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.pod.Annotations = map[string]string{"a": strings.Repeat("x", 4<<20)} // more than sockets hold
			log := filepath.Join(n.dir, "logs", "0.log")
			require.NoError(t, os.Mkdir(filepath.Dir(log), 0o755))
			n.start("main")
			n.mu.Lock()
			n.seen.Containers[0].LogPath = log
			n.mu.Unlock()
			writeLog(t, log, 8<<20)

			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			goroutines := goruntime.NumGoroutine() + 2 // those of serveTLS and of ServeTLS
			defer serveTLS(t, l, server.Kubelet(n, server.Options{}), server.TLSOptions{})()
			connect := func() client {
				raw, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.Addr().String())
				require.NoError(t, err)
				require.NoError(t, raw.(*net.TCPConn).SetLinger(0)) // a client that crashes
				return client{t, raw, tls.Client(raw, &tls.Config{InsecureSkipVerify: true})}
			}
			first := connect() // it is answered when the server has begun
			first.send("GET /healthz" + header + "Connection: close\r\n\r\n")
			_, _ = io.Copy(io.Discard, first.conn)
			require.NoError(t, first.raw.Close())
			awaitGoroutines(t, goroutines)
			files := descriptors()

			clients := make([]client, 30)
			var done sync.WaitGroup
			for i := range clients {
				clients[i] = connect()
				done.Go(func() { tt.behave(clients[i]) })
			}
			done.Wait()
			if tt.meanwhile != nil {
				tt.meanwhile(t, log)
			}
			for _, c := range clients {
				_ = c.raw.Close()
			}
			awaitDescriptors(t, files)
			awaitGoroutines(t, goroutines)
		})
	}
}

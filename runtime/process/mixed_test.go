//go:build linux

package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	goruntime "runtime"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/streams"
)

// oneContainer is an agent with a pod whose container "c" runs.
type oneContainer struct {
	server.Agent
	status *runtime.PodStatus
}

func (oneContainer) Pods() []*v1.Pod {
	return []*v1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Stdin: true}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}},
	}}
}
func (oneContainer) Terminating() []*v1.Pod { return nil }
func (a oneContainer) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) {
	return a.status, true
}
func (oneContainer) WatchRuntimeStatus(types.UID) (<-chan struct{}, func()) { return nil, func() {} }

// mixed is the API of an agent whose container runtime is in the same process, with what it began with.
type mixed struct {
	n                 *node
	streams           *streams.Handlers
	address           string
	port              int // echoes
	goroutines, files int
	heap              int64
}

func newMixed(t testing.TB) *mixed {
	n := startNode(t, Options{})
	n.server.streams.sessions.CheckPeriod = 50 * time.Millisecond // of clients that have gone
	p := n.pod()
	config := shell("c", "echo up; while read x; do echo got $x; done; sleep 1000")
	config.Stdin = true
	id := p.run(config)
	p.says("c", "up")
	rt, err := cri.Dial(t.Context(), n.server.Endpoint(), cri.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rt.Close() })
	agent := oneContainer{status: &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: p.id, State: runtime.SandboxReady}}},
		Containers: []runtime.ContainerStatus{{
			Container: runtime.Container{Name: "c", ID: runtime.ContainerID{Type: "process", ID: id},
				State: runtime.ContainerRunning},
			LogPath: n.status(id).GetLogPath(),
		}},
	}}
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			echoes.Go(func() { _, _ = io.Copy(conn, conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = echo.Close(); echoes.Wait() })
	m := &mixed{n: n, streams: streams.New(agent, rt, streams.Options{}), port: echo.Addr().(*net.TCPAddr).Port}
	mux := http.NewServeMux()
	mux.Handle("/", m.streams)
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", server.ContainerLogs(agent, server.Options{}))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	m.address = web.Listener.Addr().String()
	return m
}

// begin notes what there is after each kind of session has been there once.
func (m *mixed) begin(t testing.TB) {
	m.run(kinds)
	m.settle(t)
	m.heap = memory() // and the pipes of the pool of package net are closed
	m.goroutines, m.files = goruntime.NumGoroutine(), files(t)
}

// settle waits until all sessions have ended.
func (m *mixed) settle(t testing.TB) {
	eventually(t, func() bool { return m.streams.Sessions() == 0 && m.n.server.streams.sessions.Sessions() == 0 },
		"sessions stay")
}

// end asserts that there is no more than at the beginning.
func (m *mixed) end(t testing.TB) {
	m.settle(t)
	eventually(t, func() bool { memory(); return goruntime.NumGoroutine() <= m.goroutines && files(t) <= m.files },
		"something stays, %v", m)
	eventually(t, func() bool { return memory()-m.heap < 2<<20 }, "memory stays")
	t.Logf("goroutines %d, then %d; descriptors %d, then %d; heap %d KiB, then %d KiB", m.goroutines,
		goruntime.NumGoroutine(), m.files, files(t), m.heap>>10, memory()>>10)
}

// String returns what there is more than at the beginning.
func (m *mixed) String() string {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	links, _ := exec.Command("ls", "-l", fmt.Sprintf("/proc/%d/fd", os.Getpid())).Output()
	return fmt.Sprintf("goroutines %d, then %d; descriptors %d, then:\n%s\n%s", m.goroutines, goruntime.NumGoroutine(),
		m.files, links, &stacks)
}

func memory() int64 {
	goruntime.GC()
	goruntime.GC() // what finalizers and pools have kept
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// run runs n sessions, 8 at a time.
func (m *mixed) run(n int) {
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	for i := range n {
		places <- struct{}{}
		all.Go(func() { m.session(i); <-places })
	}
	all.Wait()
}

const (
	spdyHeader = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: "
	wsHeader   = "Upgrade: websocket\r\nOrigin: http://x\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: "
	stages = 6
	kinds  = 4 * 3 * stages
)

// session is a client that leaves at one of the stages. It does not care for errors.
func (m *mixed) session(i int) {
	kind, protocol, stage := i%4, i/4%3, i/12%stages
	target := []string{
		"/exec/default/web/c?command=cat&input=1&output=1", "/attach/default/web/c?input=1&output=1",
		fmt.Sprintf("/portForward/default/web?port=%d", m.port), "/containerLogs/default/web/c?follow=true",
	}[kind]
	header := []string{spdyHeader + "v4.channel.k8s.io", wsHeader + "v5.channel.k8s.io",
		wsHeader + "v4.channel.k8s.io"}[protocol]
	if kind == 2 {
		header = []string{spdyHeader + "portforward.k8s.io", wsHeader + "SPDY/3.1+portforward.k8s.io",
			wsHeader + "v4.channel.k8s.io"}[protocol]
	}
	conn, err := net.Dial("tcp", m.address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n%s\r\n\r\n", target, header)
	if stage == 0 {
		return
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || stage == 1 {
		return
	}
	if kind == 3 {
		_, _ = io.ReadFull(resp.Body, make([]byte, stage))
		return
	}
	frames := m.frames(kind, protocol)
	for s, frame := range frames {
		if _, err := conn.Write(frame); err != nil || s+2 == stage {
			break
		}
	}
	if stage == stages-1 { // it waits for an answer, of whatever kind, and half of them end their side first
		if i/kinds%2 == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_, _ = in.ReadByte()
	}
}

// frames returns what a client sends, in parts.
func (m *mixed) frames(kind, protocol int) (parts [][]byte) {
	if protocol == 2 || protocol == 1 && kind != 2 {
		message := func(data string) []byte {
			return append([]byte{0x82, 0x80 | byte(len(data)), 0, 0, 0, 0}, data...)
		}
		return [][]byte{message("\x00one\n"), message("\x00two\n"), message("\x00three\n")}
	}
	var out bytes.Buffer
	framer, err := spdy.NewFramer(&out, &out)
	if err != nil {
		return nil
	}
	part := func(frame spdy.Frame) {
		out.Reset()
		if framer.WriteFrame(frame) != nil {
			return
		}
		data := bytes.Clone(out.Bytes())
		if protocol == 1 { // in a WebSocket
			data = append([]byte{0x82, 0x80 | 126, byte(len(data) >> 8), byte(len(data)), 0, 0, 0, 0}, data...)
		}
		parts = append(parts, data)
	}
	types := []string{"error", "stdin", "stdout"}
	if kind == 2 {
		types = []string{"error", "data"}
	}
	for i, name := range types {
		part(&spdy.SynStreamFrame{StreamId: spdy.StreamId(1 + 2*i), Headers: http.Header{"Streamtype": {name},
			"Port": {fmt.Sprint(m.port)}, "Requestid": {"1"}}})
	}
	part(&spdy.DataFrame{StreamId: 3, Data: []byte("hello\n")})
	return parts
}

// Some hundred sessions of all kinds, closed at each stage, leave nothing behind. BenchmarkMixedSessions has more.
func TestMixedSessions(t *testing.T) {
	m := newMixed(t)
	m.begin(t)
	m.run(4 * kinds)
	m.end(t)
}

// BenchmarkMixedSessions is TestMixedSessions with b.N sessions.
func BenchmarkMixedSessions(b *testing.B) {
	m := newMixed(b)
	m.begin(b)
	b.ResetTimer()
	m.run(b.N)
	b.StopTimer()
	m.end(b)
}

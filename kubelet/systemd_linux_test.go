package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// systemd gets READY when the agent answers, WATCHDOG while it is well, and STOPPING.
func TestSystemd(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.root, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "100000")
	messages := make(chan string, 10_000)
	go func() { // without a break, since the socket holds few messages
		data := make([]byte, 100)
		for {
			n, err := l.Read(data)
			if err != nil {
				close(messages)
				return
			}
			messages <- string(data[:n])
		}
	}()
	message := func() string {
		select {
		case m := <-messages:
			return m
		case <-time.After(time.Minute):
			require.Fail(t, "no message")
			return ""
		}
	}
	ports := freePorts(t, 2)
	port, healthz := ports[0], ports[1]
	b.start(append(withPort(t, port), fmt.Sprintf("--healthz-port=%d", healthz))...)
	assert.Equal(t, "READY=1", message())
	for _, p := range []int{port, healthz} { // they answer now, not later
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", p))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	code, _ := ask(t, port, http.MethodGet, "/pods", "")
	assert.Equal(t, http.StatusOK, code)
	for range 3 {
		assert.Equal(t, "WATCHDOG=1", message())
	}
	b.stop()
	last := ""
	for last != "STOPPING=1" {
		last = message()
		assert.Contains(t, []string{"WATCHDOG=1", "STOPPING=1"}, last)
	}
}

// notifySocket is the socket of a systemd that never blocks, for virtual time.
type notifySocket struct{ fd int }

func newNotifySocket(t *testing.T) *notifySocket {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	t.Setenv("NOTIFY_SOCKET", path)
	return &notifySocket{fd}
}

// received returns how often each message has come since the last call.
func (s *notifySocket) received() map[string]int {
	out, data := map[string]int{}, make([]byte, 100)
	for {
		n, _, err := syscall.Recvfrom(s.fd, data, 0)
		if err != nil {
			return out
		}
		out[string(data[:n])]++
	}
}

// An agent whose loop hangs, or whose start does, does not feed the watchdog for ever.
func TestWatchdog(t *testing.T) {
	for name, hangs := range map[string]func(*podconfigfake.Source){
		"loop": func(s *podconfigfake.Source) {
			s.Set(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}})
		},
		"start": nil,
	} {
		t.Run(name, func(t *testing.T) {
			socket := newNotifySocket(t)
			t.Setenv("WATCHDOG_USEC", "120000000")
			notifier := systemd.FromEnvironment()
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt, source, until := fake.New(fake.Options{Events: fake.Containerd()}), podconfigfake.NewSource("test"),
					make(chan struct{})
				defer func() { _ = rt.Close() }()
				if hangs == nil {
					rt.Stop()
				}
				agent, err := kubeletkit.New(kubeletkit.Options{
					NodeName: "n", RootDir: root, Runtime: rt, Host: rt.Host(), Sources: []podconfig.Source{source},
					Workers: podworkers.Options{ResyncInterval: time.Minute}, Join: []lifecycle.Component{
						lifecycle.AdmitterFunc("test", func(lifecycle.AdmitRequest) error { <-until; return nil })},
				})
				require.NoError(t, err)
				ready := make(chan struct{})
				close(ready)
				require.NoError(t, agent.Add("systemd", func(ctx context.Context) error {
					return notifier.Run(ctx, ready, agent.Healthy, func(error) {})
				}))
				source.Set()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- agent.Run(ctx) }()
				minutes := func(n time.Duration) map[string]int {
					time.Sleep(n*time.Minute - time.Second)
					synctest.Wait()
					return socket.received()
				}
				if hangs != nil {
					assert.Equal(t, map[string]int{"READY=1": 1, "WATCHDOG=1": 10}, minutes(10))
					hangs(source)
				}
				assert.NotZero(t, minutes(4)["WATCHDOG=1"], "it may still recover")
				minutes(2)
				assert.Empty(t, minutes(60))
				close(until)
				cancel()
				require.NoError(t, <-done)
				assert.Equal(t, map[string]int{"STOPPING=1": 1}, socket.received())
			})
		})
	}
}

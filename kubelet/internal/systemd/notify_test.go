package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen returns the socket of a systemd, whose path is in the environment.
func listen(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return l
}

// received returns a function that waits for the next message. They are read without a break,
// since the socket holds few.
func received(t *testing.T, l *net.UnixConn) (next func() string) {
	t.Helper()
	require.NoError(t, l.SetReadDeadline(time.Time{}))
	messages := make(chan string, 10_000)
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := l.Read(buf)
			if err != nil {
				close(messages)
				return
			}
			messages <- string(buf[:n])
		}
	}()
	return func() string {
		select {
		case m := <-messages:
			return m
		case <-time.After(time.Minute):
			require.Fail(t, "no message")
			return ""
		}
	}
}

func TestNotify(t *testing.T) {
	for name, socket := range map[string]string{"path": filepath.Join(t.TempDir(), "s"),
		"abstract": fmt.Sprintf("@kubeletkit-%d-%s", os.Getpid(), t.Name())} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, socket)
			t.Setenv("WATCHDOG_USEC", "20000")
			n := FromEnvironment()
			assert.Empty(t, os.Getenv("NOTIFY_SOCKET"))
			var ill atomic.Bool
			var said atomic.Int64
			healthy := func() error {
				if ill.Load() {
					said.Add(1)
					return errors.New("the loop hangs")
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			ready := make(chan struct{})
			go func() { done <- n.Run(ctx, ready, healthy, func(error) {}) }()
			require.NoError(t, l.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			_, err := l.Read(make([]byte, 100))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is not ready yet")
			next := received(t, l)
			close(ready)
			assert.Equal(t, "READY=1", next())
			assert.Equal(t, "WATCHDOG=1", next())
			assert.Equal(t, "WATCHDOG=1", next())
			ill.Store(true)
			require.Eventually(t, func() bool { return said.Load() > 3 }, time.Minute, time.Millisecond)
			cancel()
			require.NoError(t, <-done)
			last := ""
			for last != "STOPPING=1" { // perhaps after one that was sent before
				last = next()
			}
		})
	}
}

func TestWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "1")
	n := FromEnvironment()
	assert.Zero(t, n.watchdog, "it is for another process")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, n.Run(ctx, nil, nil, func(err error) { t.Error(err) }))
}

func TestSocketThatIsGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := 0
	require.NoError(t, FromEnvironment().Run(ctx, nil, nil, func(error) { failed++ }))
	assert.Equal(t, 1, failed, "it was not ready yet when it stopped")
}

package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// deadSocket makes a socket at which nobody listens.
func deadSocket(t testing.TB, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

// Thousands of dead sockets are a few lines of the log and ten attempts a second. They do not hold up a plugin.
func TestDeadSockets(t *testing.T) {
	const dead = 3000
	var lines []string
	var dials, underWay, most atomic.Int32
	inVirtualTime(t, func(r *rig) {
		r.m.log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		for i := range dead {
			deadSocket(t, filepath.Join(r.dir, fmt.Sprint("dead", i)))
		}
		r.m.dial = func(_ context.Context, path string) (registration, error) {
			if filepath.Base(path) == "a.sock" {
				return r.script, nil
			}
			dials.Add(1)
			if n := underWay.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Millisecond)
			underWay.Add(-1)
			return nil, syscall.ECONNREFUSED
		}
	}, func(r *rig) {
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Len(r, r.m.Plugins(), 1)
		assert.LessOrEqual(r, most.Load(), int32(maxRegistering))
		first := dials.Load()
		assert.LessOrEqual(r, first, int32(dead*(soonRetries+1)+10*60*10))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.LessOrEqual(r, dials.Load()-first, int32(10*60*10+dead))

		r.remove()
		r.after(time.Second)
		assert.Empty(r, r.m.Plugins())
		r.create()
		r.after(time.Second)
		assert.Len(r, r.m.Plugins(), 1)
	})
	var sum, failed int
	for _, line := range lines {
		n := 0
		if _, err := fmt.Sscanf(line,
			`"msg"="Plugins cannot be registered; they are tried again, which is not logged" "error"="connecting to it: connection refused" "sockets"=%d`, &n); err == nil {
			failed++
			sum += n
		}
	}
	assert.Equal(t, dead, sum, lines)
	assert.LessOrEqual(t, failed, 2)
	assert.Less(t, len(lines), 10)
}

// A failure of a socket is logged once for each of its kinds, and again when the socket was made again.
func TestFailuresAreLoggedOnce(t *testing.T) {
	var lines []string
	var answers atomic.Bool
	inVirtualTime(t, func(r *rig) {
		r.m.log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		r.script.kind = "Other"
		r.script.info = func(context.Context) error {
			if answers.Load() {
				return nil
			}
			return errors.New("it fails")
		}
	}, func(r *rig) {
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(r, lines, 1)
		assert.Contains(r, lines[0], "it fails")
		answers.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(r, lines, 2)
		assert.Contains(r, lines[1], `no handler registered for plugin type`)
		r.remove()
		r.create()
		r.after(time.Hour)
		require.Len(r, lines, 3)
	})
}

func TestDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	deadSocket(t, path)
	_, err := dial(t.Context(), path)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	live := path + "2"
	l, err := net.Listen("unix", live)
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	conn, err := dial(t.Context(), live)
	require.NoError(t, err)
	peer, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	_, err = peer.Read(make([]byte, 1))
	require.Error(t, err, "the connection was closed")
	require.NoError(t, peer.Close())
}

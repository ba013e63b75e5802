package logind_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/shutdown/logind"
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type><listen>unix:dir=DIR</listen><auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>`

// bus is a bus of the test, by the daemon of the machine.
type bus struct {
	address string
	cmd     *exec.Cmd
}

func startBus(t *testing.T) *bus {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("there is no dbus-daemon on this machine")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "bus.conf")
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(busConfig, "DIR", dir)), 0o600))
	b := &bus{cmd: exec.Command(daemon, "--nofork", "--print-address", "--config-file="+config)}
	out, err := b.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, b.cmd.Start())
	t.Cleanup(b.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	b.address = strings.TrimSpace(line)
	return b
}

func (b *bus) stop() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// service answers in the place of logind, and for systemd.
type service struct {
	t    *testing.T
	conn *dbus.Conn

	mu        sync.Mutex
	preparing bool
	delay     any
	inhibits  []string
	kills     []string
	lock      *os.File // our end of the last lock
	sent      *os.File // a copy of the other one
}

func (b *bus) serve(t *testing.T) *service {
	t.Helper()
	conn, err := dbus.Connect(b.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s := &service{t: t, conn: conn, delay: uint64(5_000_000)}
	require.NoError(t, conn.Export(s, "/org/freedesktop/login1", "org.freedesktop.login1.Manager"))
	require.NoError(t, conn.Export(properties{s}, "/org/freedesktop/login1", "org.freedesktop.DBus.Properties"))
	require.NoError(t, conn.Export(s, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"))
	for _, name := range []string{"org.freedesktop.systemd1", "org.freedesktop.login1"} {
		reply, err := conn.RequestName(name, dbus.NameFlagDoNotQueue)
		require.NoError(t, err)
		require.Equal(t, dbus.RequestNameReplyPrimaryOwner, reply)
	}
	return s
}

// Inhibit is the method of logind.
func (s *service) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fd := dbus.UnixFD(w.Fd())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inhibits, s.lock = append(s.inhibits, strings.Join([]string{what, who, why, mode}, "/")), r
	s.sent = w
	s.t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return fd, nil
}

// KillUnit is the method of systemd.
func (s *service) KillUnit(unit, who string, signal int32) *dbus.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills = append(s.kills, unit+"/"+who)
	assert.Equal(s.t, int32(1), signal)
	return nil
}

type properties struct{ *service }

// Get is the method of properties.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "PreparingForShutdown" {
		return dbus.MakeVariant(p.preparing), nil
	}
	return dbus.MakeVariant(p.delay), nil
}

func (s *service) prepare(values ...any) {
	require.NoError(s.t, s.conn.Emit("/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForShutdown",
		values...))
}

// next returns the next signal of the session, 0 if there is none.
func next(t *testing.T, s shutdown.Session) shutdown.Signal {
	t.Helper()
	select {
	case signal, ok := <-s.Signals():
		require.True(t, ok, "the connection is lost")
		return signal
	case <-time.After(10 * time.Second):
		require.Fail(t, "no signal")
		return 0
	}
}

func TestSession(t *testing.T) {
	bus := startBus(t)
	service := bus.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := logind.New(logind.Options{Address: bus.address, Who: "test"}).Connect(ctx)
	require.NoError(t, err)
	cancel() // the session outlives it
	defer func() { _ = s.Close() }()

	delay, err := s.InhibitDelay(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, delay)
	going, err := s.ShuttingDown(t.Context())
	require.NoError(t, err)
	assert.False(t, going)
	require.NoError(t, s.Reload(t.Context()))
	assert.Equal(t, []string{"systemd-logind.service/all"}, service.kills)

	lock, err := s.Inhibit(t.Context())
	require.NoError(t, err)
	service.mu.Lock()
	assert.Equal(t, []string{"shutdown/test/Kubelet needs time to handle node shutdown/delay"}, service.inhibits)
	held := service.lock
	require.NoError(t, service.sent.Close())
	service.mu.Unlock()
	require.NoError(t, held.SetReadDeadline(time.Now()))
	_, err = held.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the lock is held")
	require.NoError(t, lock.Close())
	require.NoError(t, held.SetReadDeadline(time.Time{}))
	_, err = held.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	service.prepare(true)
	assert.Equal(t, shutdown.SignalShutdown, next(t, s))
	service.prepare(false)
	assert.Equal(t, shutdown.SignalCancelled, next(t, s))

	service.mu.Lock()
	service.delay = uint64(1<<64 - 1)
	service.mu.Unlock()
	delay, err = s.InhibitDelay(t.Context())
	require.NoError(t, err)
	assert.Greater(t, delay, 1000*time.Hour, "infinity")
	service.mu.Lock()
	service.delay = "soon"
	service.mu.Unlock()
	_, err = s.InhibitDelay(t.Context())
	assert.ErrorContains(t, err, "InhibitDelayMaxUSec of logind: is a string")
}

// Signals count only if logind has sent them, and only in their form.
func TestSignalsOfOthers(t *testing.T) {
	bus := startBus(t)
	real := bus.serve(t)
	s, err := logind.New(logind.Options{Address: bus.address}).Connect(t.Context())
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	other, err := dbus.Connect(bus.address)
	require.NoError(t, err)
	defer func() { _ = other.Close() }()

	forged := &service{t: t, conn: other}
	forged.prepare(true)
	require.NoError(t, other.Emit("/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged",
		"org.freedesktop.login1", "", other.Names()[0]))
	require.NoError(t, other.BusObject().CallWithContext(t.Context(), "org.freedesktop.DBus.GetId", 0).Err,
		"the bus has sent them on")
	real.prepare()
	real.prepare("soon")
	real.prepare(true, true)
	require.NoError(t, real.conn.Emit("/somewhere", "org.freedesktop.login1.Manager.PrepareForShutdown", true))
	real.prepare(false)
	assert.Equal(t, shutdown.SignalCancelled, next(t, s), "and nothing before it")
}

// logind is restarted: its signals count under its new name on the bus.
func TestRestartOfLogind(t *testing.T) {
	bus := startBus(t)
	first := bus.serve(t)
	s, err := logind.New(logind.Options{Address: bus.address}).Connect(t.Context())
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.NoError(t, first.conn.Close())
	second := bus.serve(t)
	assert.Equal(t, shutdown.SignalRestarted, next(t, s))
	second.prepare(true)
	assert.Equal(t, shutdown.SignalShutdown, next(t, s))
}

func TestLostConnection(t *testing.T) {
	bus := startBus(t)
	bus.serve(t)
	l := logind.New(logind.Options{Address: bus.address})
	s, err := l.Connect(t.Context())
	require.NoError(t, err)
	bus.stop()
	_, ok := <-s.Signals()
	assert.False(t, ok)
	_, err = s.Inhibit(t.Context())
	assert.Error(t, err)
	_ = s.Close()
	_, err = l.Connect(t.Context())
	assert.ErrorContains(t, err, "connecting to the system bus")
}

// A session is closed also if nobody reads its signals.
func TestCloseWithSignals(t *testing.T) {
	bus := startBus(t)
	service := bus.serve(t)
	s, err := logind.New(logind.Options{Address: bus.address}).Connect(t.Context())
	require.NoError(t, err)
	for range 5 {
		service.prepare(true)
	}
	next(t, s)
	require.NoError(t, s.Close())
	assert.NoError(t, s.Close())
}

func TestConnectFails(t *testing.T) {
	t.Run("without logind", func(t *testing.T) {
		bus := startBus(t)
		_, err := logind.New(logind.Options{Address: bus.address}).Connect(t.Context())
		assert.ErrorContains(t, err, "InhibitDelayMaxUSec of logind")
	})
	t.Run("a context that has ended", func(t *testing.T) {
		bus := startBus(t)
		bus.serve(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := logind.New(logind.Options{Address: bus.address}).Connect(ctx)
		assert.ErrorIs(t, err, context.Canceled)
	})
	t.Run("no bus", func(t *testing.T) {
		_, err := logind.New(logind.Options{Address: "unix:path=" + filepath.Join(t.TempDir(), "none")}).Connect(
			t.Context())
		assert.ErrorIs(t, err, os.ErrNotExist)
	})
}

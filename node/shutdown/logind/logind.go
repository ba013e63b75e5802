package logind

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
)

// The names on the bus, see org.freedesktop.login1(5) and org.freedesktop.systemd1(5).
const (
	service      = "org.freedesktop.login1"
	object       = dbus.ObjectPath("/org/freedesktop/login1")
	manager      = service + ".Manager"
	prepare      = "PrepareForShutdown"
	unit         = "systemd-logind.service"
	sighup       = int32(1)
	nameOwner    = "NameOwnerChanged"
	systemd      = "org.freedesktop.systemd1"
	systemdPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	busService   = "org.freedesktop.DBus"
	busInterface = "org.freedesktop.DBus"
)

// Options are the options of [New]. The zero value is usable.
type Options struct {
	// Address is that of the system bus. Default: $DBUS_SYSTEM_BUS_ADDRESS, or
	// unix:path=/var/run/dbus/system_bus_socket.
	Address string
	// Who and Why are shown by systemd-inhibit --list. Default: "kubelet", and kubelet's reason.
	Who, Why string
}

// Logind is systemd-logind. It is safe for concurrent use.
type Logind struct{ opts Options }

var _ shutdown.Logind = (*Logind)(nil)

// New returns the logind of the options. It makes no connection.
func New(opts Options) *Logind {
	opts.Who = cmp.Or(opts.Who, "kubelet")
	opts.Why = cmp.Or(opts.Why, "Kubelet needs time to handle node shutdown")
	return &Logind{opts}
}

// Connect implements [shutdown.Logind].
func (l *Logind) Connect(ctx context.Context) (shutdown.Session, error) {
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, opts: l.opts, raw: make(chan *dbus.Signal), signals: make(chan shutdown.Signal),
		closed: make(chan struct{})}
	conn.Signal(s.raw)
	if err := s.subscribe(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	s.wg.Go(s.run)
	return s, nil
}

// dial connects to the bus.
func (l *Logind) dial(ctx context.Context) (*dbus.Conn, error) {
	// Of the context of a connection only its end counts: it is closed then. This one is bounded by ctx until it is
	// ready, and closed by Close after that.
	opened, opening := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, opening)
	options := []dbus.ConnOption{dbus.WithContext(opened), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler())}
	var conn *dbus.Conn
	var err error
	if l.opts.Address != "" {
		conn, err = dbus.Connect(l.opts.Address, options...)
	} else {
		conn, err = dbus.ConnectSystemBus(options...)
	}
	if !stop() { // ctx has ended, and the connection with it
		err = context.Cause(ctx)
	}
	if err != nil {
		opening()
		return nil, fmt.Errorf("connecting to the system bus: %w", err)
	}
	return conn, nil
}

// session is a connection.
type session struct {
	conn    *dbus.Conn
	opts    Options
	raw     chan *dbus.Signal    // closed with the connection
	signals chan shutdown.Signal // closed when raw is
	closed  chan struct{}        // closed by Close
	once    sync.Once            // closes closed
	wg      sync.WaitGroup

	owner string // the unique name of logind on the bus; of run after Connect
}

// subscribe subscribes to the signals, and finds out who logind is.
func (s *session) subscribe(ctx context.Context) error {
	shutdowns := []dbus.MatchOption{
		dbus.WithMatchInterface(manager), dbus.WithMatchMember(prepare), dbus.WithMatchObjectPath(object),
		dbus.WithMatchSender(service),
	}
	if err := s.conn.AddMatchSignalContext(ctx, shutdowns...); err != nil {
		return fmt.Errorf("subscribing to %s: %w", prepare, err)
	}
	if err := s.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(busService), dbus.WithMatchInterface(busInterface),
		dbus.WithMatchMember(nameOwner), dbus.WithMatchArg(0, service)); err != nil {
		return fmt.Errorf("subscribing to %s: %w", nameOwner, err)
	}
	if _, err := s.InhibitDelay(ctx); err != nil { // the call has the bus start logind
		return err
	}
	if err := s.conn.BusObject().CallWithContext(ctx, busInterface+".GetNameOwner", 0,
		service).Store(&s.owner); err != nil {
		return fmt.Errorf("asking the bus for %s: %w", service, err)
	}
	return nil
}

// run translates the signals until the connection is lost or closed.
func (s *session) run() {
	defer close(s.signals)
	for raw := range s.raw {
		signal, ok := s.translate(raw)
		if !ok {
			continue
		}
		select {
		case s.signals <- signal:
		case <-s.closed:
			for range s.raw { // until the connection has closed it
			}
			return
		}
	}
}

// translate returns the meaning of a signal. It returns false for what others have sent, and for what has another
// form.
func (s *session) translate(raw *dbus.Signal) (shutdown.Signal, bool) {
	switch raw.Name {
	case busInterface + "." + nameOwner:
		var name, before, after string
		if raw.Sender != busService || dbus.Store(raw.Body, &name, &before, &after) != nil || name != service {
			return 0, false
		}
		if s.owner = after; after == "" { // it ends
			return 0, false
		}
		return shutdown.SignalRestarted, true
	case manager + "." + prepare:
		var begins bool
		if raw.Path != object || s.owner == "" || raw.Sender != s.owner || dbus.Store(raw.Body, &begins) != nil {
			return 0, false
		}
		if begins {
			return shutdown.SignalShutdown, true
		}
		return shutdown.SignalCancelled, true
	}
	return 0, false
}

// Signals implements [shutdown.Session].
func (s *session) Signals() <-chan shutdown.Signal { return s.signals }

// Inhibit implements [shutdown.Session].
func (s *session) Inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	if err := s.conn.Object(service, object).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", s.opts.Who,
		s.opts.Why, "delay").Store(&fd); err != nil {
		return nil, fmt.Errorf("Inhibit of logind: %w", err)
	}
	return os.NewFile(uintptr(fd), "lock of logind"), nil
}

// InhibitDelay implements [shutdown.Session].
func (s *session) InhibitDelay(ctx context.Context) (time.Duration, error) {
	usec, err := property[uint64](ctx, s, "InhibitDelayMaxUSec")
	return time.Duration(min(usec, math.MaxInt64/1000)) * time.Microsecond, err
}

// ShuttingDown implements [shutdown.Session].
func (s *session) ShuttingDown(ctx context.Context) (bool, error) {
	return property[bool](ctx, s, "PreparingForShutdown")
}

func property[T any](ctx context.Context, s *session, name string) (value T, err error) {
	var v dbus.Variant
	if err := s.conn.Object(service, object).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager,
		name).Store(&v); err != nil {
		return value, fmt.Errorf("%s of logind: %w", name, err)
	}
	value, ok := v.Value().(T)
	if !ok {
		return value, fmt.Errorf("%s of logind: is a %T, not a %T", name, v.Value(), value)
	}
	return value, nil
}

// Reload implements [shutdown.Session]. It has systemd send SIGHUP to logind.
func (s *session) Reload(ctx context.Context) error {
	if err := s.conn.Object(systemd, systemdPath).CallWithContext(ctx, systemd+".Manager.KillUnit", 0, unit,
		"all", sighup).Store(); err != nil {
		return fmt.Errorf("having systemd send SIGHUP to %s: %w", unit, err)
	}
	return nil
}

// Close implements [shutdown.Session].
func (s *session) Close() error {
	s.once.Do(func() { close(s.closed) })
	err := s.conn.Close()
	s.wg.Wait()
	return err
}

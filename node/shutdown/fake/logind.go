// Package fake has a [shutdown.Logind] in memory, for tests in virtual time, too.
//
//	logind := fake.NewLogind("")
//	go manager.Run(ctx)
//	…
//	goesOn := logind.Shutdown() // returns when the machine would go on
package fake

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
)

// ErrLost is the error of calls of a session whose connection was lost.
var ErrLost = errors.New("the connection is lost")

// Logind is a [shutdown.Logind] in memory. It is safe for concurrent use.
type Logind struct {
	mu           sync.Mutex
	dropInDir    string
	delay        time.Duration
	connectErr   error
	sessions     []*session
	locks        int
	shuttingDown bool
	released     chan struct{} // closed when a shutdown waits for no lock
	changed      chan struct{} // closed when locks changes
}

var _ shutdown.Logind = (*Logind)(nil)

// NewLogind returns a logind that waits 5 s for locks, the default of logind. When it is told to reload, it reads
// the delay from the files in the directory; if that is empty, it reads nothing.
func NewLogind(dropInDir string) *Logind {
	return &Logind{dropInDir: dropInDir, delay: 5 * time.Second, changed: make(chan struct{})}
}

// SetError makes Connect fail with the error; nil: it succeeds again.
func (l *Logind) SetError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connectErr = err
}

// Locks returns how many locks are held.
func (l *Logind) Locks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locks
}

// UntilLocked waits until a lock is held, or ctx ends.
func (l *Logind) UntilLocked(ctx context.Context) error {
	for {
		l.mu.Lock()
		locked, changed := l.locks > 0, l.changed
		l.mu.Unlock()
		if locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// add changes the number of locks. mu is held.
func (l *Logind) add(n int) {
	l.locks += n
	close(l.changed)
	l.changed = make(chan struct{})
	l.settle()
}

// Shutdown begins a shutdown, and returns when no lock is held, or the delay has passed. It returns early, with false,
// if the shutdown is cancelled meanwhile.
func (l *Logind) Shutdown() (goesOn bool) {
	l.mu.Lock()
	if !l.shuttingDown {
		l.shuttingDown, l.released = true, make(chan struct{})
		l.signal(shutdown.SignalShutdown)
		l.settle()
	}
	released, limit := l.released, time.NewTimer(l.delay)
	l.mu.Unlock()
	defer limit.Stop()
	select {
	case <-released:
	case <-limit.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shuttingDown
}

// Cancel cancels a shutdown.
func (l *Logind) Cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.signal(shutdown.SignalCancelled)
}

func (l *Logind) cancel() {
	if l.shuttingDown {
		l.goOn()
		l.shuttingDown = false
	}
}

// goOn ends the wait of a shutdown. mu is held.
func (l *Logind) goOn() {
	select {
	case <-l.released:
	default:
		close(l.released)
	}
}

// Restart restarts the service: it forgets a shutdown, and keeps locks.
func (l *Logind) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.signal(shutdown.SignalRestarted)
}

// Disconnect ends all connections.
func (l *Logind) Disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.lost = true
		close(s.signals)
	}
	l.sessions = nil
}

// settle lets a shutdown go on if no lock is held. mu is held.
func (l *Logind) settle() {
	if l.shuttingDown && l.locks == 0 {
		l.goOn()
	}
}

// signal sends the signal to all sessions. mu is held.
func (l *Logind) signal(s shutdown.Signal) {
	for _, session := range l.sessions {
		session.signals <- s
	}
}

// Connect implements [shutdown.Logind].
func (l *Logind) Connect(context.Context) (shutdown.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connectErr != nil {
		return nil, l.connectErr
	}
	s := &session{logind: l, signals: make(chan shutdown.Signal, 100)} // tests send fewer
	l.sessions = append(l.sessions, s)
	return s, nil
}

type session struct {
	logind  *Logind
	signals chan shutdown.Signal
	lost    bool // guarded by logind.mu
}

// do calls f with the lock held, unless the connection is lost.
func (s *session) do(f func(l *Logind) error) error {
	s.logind.mu.Lock()
	defer s.logind.mu.Unlock()
	if s.lost {
		return ErrLost
	}
	return f(s.logind)
}

// Inhibit implements [shutdown.Session].
func (s *session) Inhibit(context.Context) (lock io.Closer, err error) {
	err = s.do(func(l *Logind) error {
		if l.shuttingDown {
			return errors.New("the operation is in progress")
		}
		l.add(1)
		lock = &inhibitor{logind: l}
		return nil
	})
	return lock, err
}

// InhibitDelay implements [shutdown.Session].
func (s *session) InhibitDelay(context.Context) (delay time.Duration, err error) {
	err = s.do(func(l *Logind) error { delay = l.delay; return nil })
	return delay, err
}

// ShuttingDown implements [shutdown.Session].
func (s *session) ShuttingDown(context.Context) (yes bool, err error) {
	err = s.do(func(l *Logind) error { yes = l.shuttingDown; return nil })
	return yes, err
}

// delaySetting finds the delay in a file, in seconds.
const delaySetting = `(?m)^InhibitDelayMaxSec=(\d+)$`

// Reload implements [shutdown.Session].
func (s *session) Reload(context.Context) error {
	return s.do(func(l *Logind) error {
		files, err := filepath.Glob(filepath.Join(l.dropInDir, "*.conf"))
		if l.dropInDir == "" || err != nil {
			return err
		}
		for _, file := range slices.Sorted(slices.Values(files)) {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if found := regexp.MustCompile(delaySetting).FindSubmatch(data); found != nil {
				n, err := strconv.Atoi(string(found[1]))
				if err != nil {
					return err
				}
				l.delay = time.Duration(n) * time.Second
			}
		}
		return nil
	})
}

// Signals implements [shutdown.Session].
func (s *session) Signals() <-chan shutdown.Signal { return s.signals }

// Close implements [shutdown.Session].
func (s *session) Close() error {
	s.logind.mu.Lock()
	defer s.logind.mu.Unlock()
	s.lost = true
	s.logind.sessions = slices.DeleteFunc(s.logind.sessions, func(other *session) bool { return other == s })
	return nil
}

// inhibitor is a lock.
type inhibitor struct {
	logind *Logind
	once   sync.Once
}

// Close implements [io.Closer].
func (i *inhibitor) Close() error {
	i.once.Do(func() {
		i.logind.mu.Lock()
		defer i.logind.mu.Unlock()
		i.logind.add(-1)
	})
	return nil
}

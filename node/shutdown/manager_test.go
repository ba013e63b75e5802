package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/shutdown/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// rig is a manager under test.
type rig struct {
	*shutdown.Manager
	t      *testing.T
	logind *fake.Logind
	node   *nodefake.Node
	dir    string
	cancel context.CancelFunc
	done   chan error

	mu    sync.Mutex
	lines []string // of the log
}

// times returns how long the measured shutdowns took.
func (r *rig) times() (all []string) {
	for _, m := range r.node.Measurements() {
		s, text := m.(shutdown.Shutdown), "under way"
		if !s.End.IsZero() {
			text = s.End.Sub(s.Start).Round(time.Second).String()
		}
		all = append(all, text)
	}
	return all
}

// newRig returns a manager with the periods 20 s and 10 s that does not run yet. dir is made outside of the bubble.
func newRig(t *testing.T, dir string, logind *fake.Logind, pods ...*v1.Pod) *rig {
	r := &rig{t: t, logind: logind, node: nodefake.NewNode(pods...), dir: dir, done: make(chan error, 1)}
	r.node.Log = funcr.New(func(_, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, args)
	}, funcr.Options{})
	var err error
	r.Manager, err = shutdown.New(shutdown.Classes(30*time.Second, 10*time.Second), logind, shutdown.Options{
		DropInDir: filepath.Join(dir, "logind.conf.d"), StateDir: dir,
	})
	require.NoError(t, err)
	require.NoError(t, r.Join(r.node))
	return r
}

func (r *rig) events() (out []string) {
	for _, e := range r.node.Events() {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() { r.done <- r.Run(ctx) }()
	r.after(5 * time.Second) // the delay may be raised
}

func (r *rig) stop() {
	r.cancel()
	require.NoError(r.t, <-r.done)
	assert.Zero(r.t, r.logind.Locks(), "no lock is left")
}

func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// said returns how many lines of the log have the text.
func (r *rig) said(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (r *rig) admits() error {
	_, err := r.Admit(lifecycle.AdmitRequest{Pod: makePod("new", 0)})
	return err
}

// logindOf returns a logind that reads the drop-ins of the directory.
func logindOf(dir string) *fake.Logind { return fake.NewLogind(filepath.Join(dir, "logind.conf.d")) }

func TestManager(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir, logindOf(dir), makePod("web", 0), makePod("dns", systemCritical))
		r.start()
		defer r.stop()
		require.Equal(t, 1, r.logind.Locks())
		require.NoError(t, r.NodeReady())
		require.NoError(t, r.admits())
		data, err := os.ReadFile(filepath.Join(dir, "logind.conf.d", "99-kubelet.conf"))
		require.NoError(t, err)
		assert.Equal(t, "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n", string(data))

		r.node.SetStopDelay("uid-web", 7*time.Second)
		r.node.SetStopDelay("uid-dns", 3*time.Second)
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			assert.EqualError(t, r.NodeReady(), "node is shutting down")
			err := r.admits()
			var refusal *runtime.TerminalError
			if assert.ErrorAs(t, err, &refusal) {
				assert.Equal(t, "NodeShutdown", refusal.Reason)
				assert.Equal(t, "Pod was rejected as the node is shutting down.", refusal.Message)
			}
			assert.Equal(t, 1, r.node.StatusChanges(), "the node is not ready before a pod has ended")
		})
		assert.True(t, r.logind.Shutdown())
		assert.InDelta(t, 10, time.Since(began).Seconds(), 0.5, "it goes on when the pods have ended")
		assert.Equal(t, "web with 20 s at 0 s, dns with 10 s at 7 s", transcript(r.node, began))
		r.after(time.Minute)
		assert.EqualError(t, r.NodeReady(), "node is shutting down")
		assert.Equal(t, []string{"Shutdown: Shutdown manager detected shutdown event"}, r.events())
		assert.Equal(t, []string{"under way", "10s"}, r.times())
		data, err = os.ReadFile(filepath.Join(dir, "graceful_node_shutdown_state"))
		require.NoError(t, err)
		assert.Equal(t, `{"startTime":"2000-01-01T00:00:05Z","endTime":"2000-01-01T00:00:15Z"}`, string(data))
	})
	synctest.Test(t, func(t *testing.T) { // after the boot
		r := newRig(t, dir, logindOf(dir))
		r.start()
		defer r.stop()
		assert.Equal(t, []string{"10s"}, r.times())
	})
}

// A state that the file of kubelet may have.
func TestStateOfAKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		said int
	}{
		"ended":         {`{"startTime":"2026-01-02T03:04:05.123456789Z","endTime":"2026-01-02T03:04:15.123456789+00:00"}`, []string{"10s"}, 0},
		"killed":        {`{"startTime":"2026-01-02T03:04:05Z","endTime":"0001-01-01T00:00:00Z"}`, []string{"under way"}, 0},
		"broken":        {`{"startTime":`, nil, 1},
		"too large":     {strings.Repeat(" ", 5000), nil, 1},
		"another value": {`{"startTime":7}`, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "graceful_node_shutdown_state"), []byte(c.text), 0o644))
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, dir, logindOf(dir))
				r.start()
				defer r.stop()
				assert.Equal(t, c.want, r.times())
				assert.Equal(t, c.said, r.said("Times of the last shutdown cannot be read"))
				assert.Equal(t, 1, r.logind.Locks())
			})
		})
	}
}

// Pods of later groups go on after a cancelled shutdown, new ones are admitted, and the next shutdown waits again.
func TestShutdownThatIsCancelled(t *testing.T) {
	for name, cancel := range map[string]func(*fake.Logind){
		"by a signal": (*fake.Logind).Cancel,
		// It forgets the shutdown, and says so when it is asked.
		"by a restart of logind": (*fake.Logind).Restart,
		"while the connection is lost": func(l *fake.Logind) {
			l.Disconnect()
			l.Cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, dir, logindOf(dir), makePod("web", 0), makePod("dns", systemCritical))
				r.start()
				defer r.stop()
				r.node.SetStopDelay("uid-web", 15*time.Second)
				time.AfterFunc(5*time.Second, func() { cancel(r.logind) })
				assert.False(t, r.logind.Shutdown())
				r.after(time.Minute)
				assert.NoError(t, r.NodeReady())
				assert.NoError(t, r.admits())
				assert.Equal(t, 1, r.logind.Locks())
				assert.Equal(t, 2, r.node.StatusChanges())
				assert.Len(t, r.node.Ends(), 1)
				assert.Equal(t, []string{"Shutdown: Shutdown manager detected shutdown event",
					"Shutdown: Shutdown manager detected shutdown cancellation"}, r.events())

				assert.True(t, r.logind.Shutdown())
				assert.Len(t, r.node.Ends(), 2)
				assert.Empty(t, r.node.Active())
			})
		})
	}
}

// After the pods have ended, too, a shutdown can be cancelled.
func TestShutdownThatIsCancelledLate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir, logindOf(dir), makePod("web", 0))
		r.start()
		defer r.stop()
		assert.True(t, r.logind.Shutdown())
		r.logind.Cancel()
		r.after(time.Second)
		assert.NoError(t, r.NodeReady())
		assert.Equal(t, 1, r.logind.Locks())
		r.logind.Cancel() // of a shutdown that was not delayed
		r.after(time.Second)
		assert.Equal(t, 1, r.logind.Locks())
		assert.Equal(t, 2, r.node.StatusChanges())
	})
}

// A connection that is lost is made anew, also while pods end; the lock is held meanwhile.
func TestReconnect(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir, logindOf(dir), makePod("web", 0))
		r.start()
		defer r.stop()
		for range 2 {
			r.logind.SetError(errors.New("connection refused"))
			r.logind.Disconnect()
			r.after(10 * time.Minute)
			assert.Equal(t, 1, r.logind.Locks())
			r.logind.SetError(nil)
			r.after(time.Minute)
			assert.Equal(t, 1, r.logind.Locks())
		}
		assert.Equal(t, 2, r.said("connection refused"))
		assert.Equal(t, 3, r.said("Shutdowns of the machine wait"))

		r.node.SetStopDelay("uid-web", 10*time.Second)
		began := time.Now()
		time.AfterFunc(2*time.Second, r.logind.Disconnect)
		assert.True(t, r.logind.Shutdown())
		assert.InDelta(t, 10, time.Since(began).Seconds(), 0.5)
	})
}

// A shutdown whose signal was missed is found, and so is one that began before the agent.
func TestShutdownThatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir, logindOf(dir), makePod("web", 0))
		r.start()
		r.logind.SetError(errors.New("connection refused"))
		r.logind.Disconnect()
		time.AfterFunc(5*time.Second, func() { r.logind.SetError(nil) })
		assert.True(t, r.logind.Shutdown())
		assert.Empty(t, r.node.Active())
		r.stop()

		r = newRig(t, dir, r.logind, makePod("late", 0))
		r.start()
		defer r.stop()
		assert.Empty(t, r.node.Active())
		assert.Error(t, r.admits())
	})
}

// Without logind the manager says so once and waits; it returns no error.
func TestWithoutLogind(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		logind := logindOf(dir)
		logind.SetError(errors.New("no such file"))
		r := newRig(t, dir, logind)
		r.start()
		r.after(time.Hour)
		assert.Equal(t, 1, r.said("Without systemd-logind"))
		assert.NoError(t, r.admits())
		assert.ErrorIs(t, r.Run(t.Context()), runtime.ErrAlreadyRunning)
		r.stop()
	})
}

// If the delay of the machine cannot be raised, that is logged once, and the pods have the time that there is.
func TestDelayThatCannotBeRaised(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		said    string
	}{
		"a file in place of the directory": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "logind.conf.d"), nil, 0o600))
		}, "cannot be raised"},
		"another drop-in": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "logind.conf.d"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "logind.conf.d", "zz.conf"),
				[]byte("[Login]\nInhibitDelayMaxSec=15\n"), 0o600))
		}, "Another file may set InhibitDelayMaxSec"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, dir, logindOf(dir), makePod("web", 0), makePod("dns", systemCritical))
				r.start()
				defer r.stop()
				for range 3 {
					r.logind.Restart()
					r.after(10 * time.Second)
				}
				assert.Equal(t, 1, r.said(c.said))
				assert.Equal(t, 1, r.logind.Locks())
				r.node.SetStopDelay("uid-web", time.Hour)
				r.node.SetStopDelay("uid-dns", time.Hour)
				assert.True(t, r.logind.Shutdown())
				var graces []string
				for _, e := range r.node.Ends() {
					graces = append(graces, fmt.Sprint(e.Pod, e.GracePeriod))
				}
				want := map[string][]string{"another drop-in": {"web10", "dns5"}}[name]
				if want == nil {
					want = []string{"web3", "dns1"} // of the 5 s
				}
				assert.Equal(t, want, graces)
			})
		})
	}
}

// broken is a node that panics.
type broken struct{ lifecycle.NopNode }

func (broken) Pods() []*v1.Pod { panic("broken") }

// A panic of the node does not keep the machine from shutting down.
func TestPanicOfNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logind := fake.NewLogind("")
		m, err := shutdown.New(shutdown.Classes(5*time.Second, 0), logind, shutdown.Options{})
		require.NoError(t, err)
		require.NoError(t, m.Join(broken{}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		assert.True(t, logind.Shutdown())
		assert.Zero(t, time.Since(began))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestNewManager(t *testing.T) {
	_, err := shutdown.New(nil, nil, shutdown.Options{DropInDir: "x"})
	for _, want := range []string{"there must be periods, all of them limited", "no logind",
		`DropInDir "x"`} {
		assert.ErrorContains(t, err, want)
	}
	_, err = shutdown.New(shutdown.Unlimited(), fake.NewLogind(""), shutdown.Options{})
	assert.ErrorContains(t, err, "there must be periods, all of them limited")
}

package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// slowDirs take their time for a pod.
type slowDirs struct {
	dirs
	slow types.UID
	end  chan error
}

func (d *slowDirs) Remove(ctx context.Context, ref runtime.PodRef, dir string) error {
	d.add("begin %s", ref.UID)
	if ref.UID == d.slow {
		select {
		case err := <-d.end:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			d.add("cancelled %s", ref.UID)
			return ctx.Err()
		}
	}
	return os.RemoveAll(dir)
}

// newSlowHandler returns a handler with the directories of these pods, of which the removal
// of the one of uid-a lasts until a value is sent to end.
func newSlowHandler(t *testing.T, podsDir string, uids ...string) (*syncloop.PodHandler, *handlerBench, *slowDirs) {
	t.Helper()
	b := newHandler(t, syncloop.HandlerOptions{})
	d := &slowDirs{slow: "uid-a", end: make(chan error)}
	for _, uid := range uids {
		require.NoError(t, os.Mkdir(filepath.Join(podsDir, uid), 0o750))
	}
	h, err := syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: b.status,
		Runtime: b.runtime, Steps: stepsOf(t, d)}, syncloop.HandlerOptions{PodsDir: podsDir})
	require.NoError(t, err)
	return h, b, d
}

// A volume that hangs when it is torn down does not stop the loop.
func TestARemovalThatHangsDelaysItsPodOnly(t *testing.T) {
	podsDir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, b, d := newSlowHandler(t, podsDir, "uid-a", "uid-b", "uid-c")
		clean := func() []string {
			t.Helper()
			began := time.Now()
			require.NoError(t, h.HandlePodCleanups(t.Context()))
			assert.Zero(t, time.Since(began), "it waits for no removal")
			synctest.Wait()
			return d.take()
		}
		assert.ElementsMatch(t, []string{"begin uid-a", "begin uid-b", "begin uid-c"}, clean())
		assert.Empty(t, clean())
		assert.True(t, h.CleanupUnderWay())

		// The pod comes back. Its volumes must not be set up while they are torn down.
		pod := makePod("a")
		h.HandlePodAdditions([]*v1.Pod{pod})
		h.HandlePodUpdates([]*v1.Pod{pod})
		h.HandlePodSyncs([]*v1.Pod{pod})
		assert.Empty(t, clean())
		assert.Empty(t, b.workers.take())
		d.end <- nil
		synctest.Wait()
		assert.Empty(t, clean())
		assert.Equal(t, []string{"create a"}, b.workers.take())
		assert.False(t, h.CleanupUnderWay())
	})
}

// A pod that comes back after its removal starts at once, although no cleanup has followed.
func TestAPodStartsAtOnceAfterItsRemoval(t *testing.T) {
	podsDir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, b, d := newSlowHandler(t, podsDir, "uid-a")
		require.NoError(t, h.HandlePodCleanups(t.Context()))
		d.end <- nil
		synctest.Wait()
		h.HandlePodAdditions([]*v1.Pod{makePod("a")})
		assert.Equal(t, []string{"create a"}, b.workers.take())
	})
}

// A removal that fails is repeated less and less often, and a failure is logged when it is a new one.
func TestARemovalThatFailsIsRepeated(t *testing.T) {
	podsDir := t.TempDir()
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	synctest.Test(t, func(t *testing.T) {
		b, calls := newHandler(t, syncloop.HandlerOptions{}), 0
		fails := errAway
		steps := stepsOf(t, removeFunc(func(dir string) error {
			if calls++; fails != nil {
				return fails
			}
			return os.RemoveAll(dir)
		}))
		require.NoError(t, os.Mkdir(filepath.Join(podsDir, "uid-a"), 0o750))
		h, err := syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: b.status,
			Runtime: b.runtime, Steps: steps},
			syncloop.HandlerOptions{PodsDir: podsDir, Observer: runtime.Observer{NonBlocking: true, Logger: log}})
		require.NoError(t, err)
		pass := func(d time.Duration) {
			for range d / (2 * time.Second) {
				require.NoError(t, h.HandlePodCleanups(t.Context()))
				time.Sleep(2 * time.Second)
			}
		}
		pass(time.Hour)
		assert.InDelta(t, 35, calls, 5, "each two minutes after some")
		assert.Len(t, lines, 1, "the same failure")
		assert.True(t, h.CleanupUnderWay())
		fails = errors.New("still busy")
		pass(10 * time.Minute)
		assert.Len(t, lines, 2, "another failure")
		fails = nil
		pass(10 * time.Minute)
		assert.NoDirExists(t, filepath.Join(podsDir, "uid-a"))
		assert.False(t, h.CleanupUnderWay())
		assert.Len(t, lines, 2)
	})
}

// removeFunc removes the directory of a pod.
type removeFunc func(dir string) error

func (f removeFunc) Remove(_ context.Context, _ runtime.PodRef, dir string) error { return f(dir) }

// Removals that take their time go on beside the loop and beside each other. A pod that uses a UID again waits for its
// own. Those that hang hold up no others.
func TestManySlowRemovals(t *testing.T) {
	for _, hang := range []int{0, 40} {
		podsDir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			b := newHandler(t, syncloop.HandlerOptions{})
			for i := range 100 {
				require.NoError(t, os.Mkdir(filepath.Join(podsDir, fmt.Sprintf("uid-%03d", i)), 0o750))
			}
			var underWay, most atomic.Int32
			release := make(chan struct{})
			steps := stepsOf(t, removeFunc(func(dir string) error {
				if n := underWay.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer underWay.Add(-1)
				if filepath.Base(dir) < fmt.Sprintf("uid-%03d", hang) {
					<-release
					return nil
				}
				time.Sleep(250 * time.Millisecond)
				return os.RemoveAll(dir)
			}))
			h, err := syncloop.NewHandler(syncloop.HandlerDeps{Pods: b.pods, Workers: b.workers, Status: b.status,
				Runtime: b.runtime, Steps: steps}, syncloop.HandlerOptions{PodsDir: podsDir})
			require.NoError(t, err)
			cfg := &config{changes: make(chan podconfig.Change), seen: true}
			l, err := syncloop.New(syncloop.Deps{Handler: h, Config: cfg, PLEG: &events{}, Runtime: &checker{},
				Pods: b.pods}, syncloop.Options{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()

			time.Sleep(2*time.Second + time.Millisecond) // the first cleanup
			began := time.Now()
			cfg.changes <- podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("new"), makePod("099")}}
			synctest.Wait()
			assert.Zero(t, time.Since(began), "the loop goes on")
			assert.Equal(t, []string{"create new"}, b.workers.take())
			wait := 2 * time.Second // 7 rounds of 16 in 1.75 s
			if hang > 0 {
				wait += 15 * time.Second // until the last of those that hang do not count any more
			}
			time.Sleep(wait)
			synctest.Wait()
			left, err := os.ReadDir(podsDir)
			require.NoError(t, err)
			assert.Len(t, left, hang)
			assert.LessOrEqual(t, int(most.Load()), 16+hang)
			time.Sleep(2 * time.Second)
			assert.Equal(t, []string{"create 099"}, b.workers.take(), "with the next cleanup")
			close(release)
			cancel()
			require.NoError(t, <-done)
		})
	}
}

// The directory lost+found of a file system is not that of a gone pod.
func TestLostAndFoundStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		podsDir := t.TempDir()
		h, _, d := newSlowHandler(t, podsDir, "lost+found", "uid-b")
		require.NoError(t, h.HandlePodCleanups(t.Context()))
		synctest.Wait()
		assert.Equal(t, []string{"begin uid-b"}, d.take())
		assert.DirExists(t, filepath.Join(podsDir, "lost+found"))
	})
}

// The loop ends what its handler has started, also when it ends because of an error.
func TestTheLoopWaitsForRemovals(t *testing.T) {
	podsDir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, b, d := newSlowHandler(t, podsDir, "uid-a")
		cfg := &config{changes: make(chan podconfig.Change), seen: true}
		l, err := syncloop.New(syncloop.Deps{Handler: h, Config: cfg, PLEG: &events{}, Runtime: &checker{},
			Pods: b.pods}, syncloop.Options{})
		require.NoError(t, err)
		time.AfterFunc(10*time.Second, func() { close(cfg.changes) })
		require.ErrorContains(t, l.Run(t.Context()), "desired state")
		assert.Equal(t, []string{"begin uid-a", "cancelled uid-a"}, d.take())
	})
}

// A pod comes back while its directory is removed, which takes long. It starts soon after
// the removal, although the loop has had no other input for a long time.
func TestAPodStartsSoonAfterASlowRemoval(t *testing.T) {
	podsDir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, b, d := newSlowHandler(t, podsDir, "uid-a")
		cfg := &config{changes: make(chan podconfig.Change), seen: true}
		l, err := syncloop.New(syncloop.Deps{Handler: h, Config: cfg, PLEG: &events{}, Runtime: &checker{},
			Pods: b.pods}, syncloop.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(5 * time.Second)
		cfg.changes <- podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("a")}}
		time.Sleep(10*time.Minute + 3*time.Second)
		assert.Empty(t, b.workers.take())
		d.end <- nil
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"create a"}, b.workers.take())
		cancel()
		require.NoError(t, <-done)
	})
}

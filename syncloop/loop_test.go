package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// bench is a loop with inputs that the test drives, in virtual time.
type bench struct {
	*syncloop.Loop
	handler *recorder
	config  *config
	pleg    *events
	runtime *checker
	probes  chan runtime.ProbeResult
	pods    podSet
	stop    func() error
	// refreshed are the pods whose status was to be refreshed.
	refreshed []types.UID
	// changed is called with the objects that have changed.
	changed func([]objects.Ref)
}

type benchProber struct {
	prober.Base
	b *bench
}

func (p benchProber) Results() <-chan runtime.ProbeResult { return p.b.probes }

type benchSyncer struct {
	podworkers.Syncer
	b *bench
}

func (s benchSyncer) RefreshStatus(uid types.UID) { s.b.refreshed = append(s.b.refreshed, uid) }

// Secret, ConfigMap and Watch make a bench a source of objects.
func (b *bench) Secret(context.Context, string, string) (*v1.Secret, error) {
	return nil, errors.ErrUnsupported
}
func (b *bench) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return nil, errors.ErrUnsupported
}
func (b *bench) Watch(ctx context.Context, changed func([]objects.Ref)) error {
	b.changed = changed
	<-ctx.Done()
	return nil
}

func inLoop(t *testing.T, opts syncloop.Options, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			handler: &recorder{}, config: &config{changes: make(chan podconfig.Change)},
			pleg:    &events{ch: make(chan pleg.PodEvents)},
			runtime: &checker{}, probes: make(chan runtime.ProbeResult), pods: newPodSet(),
		}
		var err error
		b.Loop, err = syncloop.New(syncloop.Deps{Handler: b.handler, Config: b.config, PLEG: b.pleg, Runtime: b.runtime,
			Pods: b.pods, Prober: benchProber{b: b}, Syncer: benchSyncer{b: b}, Objects: b}, opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		b.stop = func() error { cancel(); return <-done }
		synctest.Wait()
		test(t, b)
		require.NoError(t, b.stop())
	})
}

func TestChangesGoToTheHandler(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		pods := []*v1.Pod{makePod("a")}
		for _, op := range []podconfig.Op{podconfig.Restore, podconfig.Add, podconfig.Update, podconfig.Delete,
			podconfig.Remove, podconfig.Reconcile} {
			b.config.changes <- podconfig.Change{Op: op, Source: "file", Pods: pods}
		}
		b.config.changes <- podconfig.Change{Op: podconfig.Add, Source: "file"} // a source without pods was seen
		b.config.changes <- podconfig.Change{Op: 99, Pods: pods}
		synctest.Wait()
		assert.Equal(t, []string{"add [a]", "add [a]", "update [a]", "update [a]", "remove [a]", "reconcile [a]"},
			b.handler.take())
	})
}

func TestEventsAndProbeResultsSyncDesiredPods(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		pod := makePod("a")
		b.pods.Set(pod)
		ref := runtime.RefOf(pod)
		b.pleg.ch <- pleg.PodEvents{Pod: ref, Events: []pleg.Event{{Type: pleg.ContainerDied}}}
		b.pleg.ch <- pleg.PodEvents{Pod: ref, Events: []pleg.Event{{Type: pleg.ContainerRemoved},
			{Type: pleg.SandboxRemoved}}}
		b.pleg.ch <- pleg.PodEvents{Pod: runtime.PodRef{UID: "unknown"},
			Events: []pleg.Event{{Type: pleg.ContainerDied}}}
		b.probes <- runtime.ProbeResult{Pod: ref}
		synctest.Wait()
		assert.Equal(t, []string{"sync [a]", "sync [a]"}, b.handler.take(),
			"neither for removals nor for pods that are not desired")
	})
}

func TestProbeResultsRefreshTheStatus(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.probes <- runtime.ProbeResult{Pod: runtime.RefOf(makePod("gone")), Kind: runtime.ReadinessProbe}
		synctest.Wait()
		assert.Equal(t, []types.UID{makePod("gone").UID}, b.refreshed,
			"also of a pod that is not desired: it may be stopping")
		assert.Empty(t, b.handler.take())
	})
}

func TestNoHousekeepingBeforeAllSourcesAreSeen(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		time.Sleep(time.Minute + 500*time.Millisecond) // away from the ticks
		assert.Empty(t, b.handler.take())
		b.config.see()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Len(t, b.handler.take(), 5, "every 2 s")
		b.handler.failCleanups(errors.New("disk full"))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		assert.Len(t, b.handler.take(), 2, "a failure is tried again")
	})
}

// A cleanup that fails again and again is one line in the log for each error.
func TestAFailureOfHousekeepingIsLoggedOnce(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "Housekeeping") {
			lines = append(lines, args)
		}
	}, funcr.Options{})
	inLoop(t, syncloop.Options{Logger: log}, func(t *testing.T, b *bench) {
		b.config.see()
		for i, err := range []error{errors.New("disk full"), errors.New("read-only"), nil, errors.New("read-only")} {
			b.handler.failCleanups(err)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			assert.Len(t, lines, []int{1, 2, 2, 3}[i], "%v", err)
		}
	})
}

func TestHousekeepingIsRareWhileNothingHappens(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.config.see()
		cleanups := func(d time.Duration) int {
			time.Sleep(d)
			synctest.Wait()
			return len(b.handler.take())
		}
		assert.Equal(t, 15, cleanups(31*time.Second), "every 2 s for half a minute")
		assert.Equal(t, 10, cleanups(5*time.Minute), "every 30 s")
		b.probes <- runtime.ProbeResult{Pod: runtime.PodRef{UID: "a"}}
		assert.Equal(t, 5, cleanups(10*time.Second), "something has happened")
		assert.Equal(t, 20, cleanups(5*time.Minute), "every 2 s for 20 s more")
		b.handler.failCleanups(errors.New("disk full"))
		assert.InDelta(t, 135, cleanups(5*time.Minute), 15, "a failure is tried again until it succeeds")
	})
}

// Each wake-up of an idle machine costs more CPU time than what the loop does then.
func TestAnIdleLoopWakesUpRarely(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.config.see()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		before := b.config.count()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.LessOrEqual(t, b.config.count()-before, 20+2*20, "a round for each tick, and two calls for each "+
			"cleanup with its round")
	})
}

func TestNoHousekeepingWhileAnAddedSourceIsUnseen(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.config.see()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Len(t, b.handler.take(), 2)
		assert.True(t, b.Synced())
		b.config.set(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Empty(t, b.handler.take())
		assert.False(t, b.Synced())
		b.config.see()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, b.handler.take(), 1)
	})
}

func TestHousekeepingFollowsTheEndOfPods(t *testing.T) {
	inLoop(t, syncloop.Options{HousekeepingPeriod: time.Hour}, func(t *testing.T, b *bench) {
		b.PodEnded()
		time.Sleep(time.Second)
		assert.Empty(t, b.handler.take(), "not all sources are seen")
		b.config.see()
		for range 3 {
			b.PodEnded()
			time.Sleep(50 * time.Millisecond)
		}
		assert.Empty(t, b.handler.take(), "others may follow")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, b.handler.take(), 1)
		time.Sleep(time.Minute)
		assert.Len(t, b.handler.take(), 1, "one ended after the first was taken up, and may have come too late")
		for range 100 {
			b.PodEnded()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		assert.InDelta(t, 4, len(b.handler.take()), 1, "four a second at most")
	})
}

func TestRestsWhileTheRuntimeIsAway(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.runtime.set(errAway)
		time.Sleep(6 * time.Second) // the next check finds out
		synctest.Wait()
		require.ErrorIs(t, b.RuntimeError(), errAway)
		offered := make(chan struct{})
		go func() {
			b.config.changes <- podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("a")}}
			close(offered)
		}()
		checks := b.runtime.count()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, b.handler.take(), "nothing is taken from the inputs")
		assert.InDelta(t, 12, b.runtime.count()-checks, 6, "it is looked for every 5 s at the latest")
		stale := time.Since(b.LastIteration())
		assert.GreaterOrEqual(t, stale, time.Minute)

		b.runtime.set(nil)
		<-offered
		synctest.Wait()
		assert.Equal(t, []string{"add [a]"}, b.handler.take())
		assert.Less(t, time.Since(b.LastIteration()), time.Second)
	})
}

func TestRestsWhileThePLEGIsUnhealthy(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.config.see()
		b.pleg.set(errors.New("no list for 3m"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.handler.take()
		time.Sleep(10 * time.Second)
		assert.Empty(t, b.handler.take())
		b.pleg.set(nil)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		assert.NotEmpty(t, b.handler.take(), "it goes on by itself within 5 s")
	})
}

// The loop waits, and nothing else wakes it up.
func TestAnIdleLoopNoticesThatThePLEGIsUnhealthy(t *testing.T) {
	inLoop(t, syncloop.Options{HousekeepingPeriod: time.Hour}, func(t *testing.T, b *bench) {
		b.config.see()
		time.Sleep(time.Minute)
		b.pleg.set(errors.New("no list for 3m"))
		time.Sleep(6 * time.Second) // the next check of the runtime
		offered := make(chan struct{})
		go func() {
			b.config.changes <- podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("a")}}
			close(offered)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, b.handler.take(), "nothing is taken from the inputs")
		b.pleg.set(nil)
		<-offered
		synctest.Wait()
		assert.Equal(t, []string{"add [a]"}, b.handler.take())
	})
}

func TestGoesOnWithoutPodNetwork(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.runtime.set(fmt.Errorf("%w: no CNI configuration", runtime.ErrNetworkNotReady))
		time.Sleep(10 * time.Second)
		b.config.changes <- podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{makePod("a")}}
		synctest.Wait()
		assert.Equal(t, []string{"add [a]"}, b.handler.take())
		assert.ErrorIs(t, b.RuntimeError(), runtime.ErrNetworkNotReady)
	})
}

// Pods that wait for the network would otherwise wait for the end of their back-off.
func TestAllPodsAreSyncedWhenTheNetworkIsReady(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		b.pods.Set(makePod("a"))
		time.Sleep(10 * time.Second)
		assert.Empty(t, b.handler.take(), "it is ready from the start")
		b.runtime.set(fmt.Errorf("%w: no CNI configuration", runtime.ErrNetworkNotReady))
		time.Sleep(time.Minute)
		assert.Empty(t, b.handler.take())
		b.runtime.set(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"sync [a]"}, b.handler.take())
	})
}

func TestPodsAreSyncedWhenTheirObjectsChange(t *testing.T) {
	inLoop(t, syncloop.Options{}, func(t *testing.T, b *bench) {
		web := makePod("web")
		web.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "registry"}}
		b.pods.Set(web)
		b.pods.Set(makePod("other"))
		b.changed([]objects.Ref{{Kind: objects.SecretKind, Namespace: web.Namespace, Name: "registry"}})
		synctest.Wait()
		assert.Equal(t, []string{"sync [web]"}, b.handler.take())
	})
}

func TestAnInputThatEndsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &config{changes: make(chan podconfig.Change)}
		l, err := syncloop.New(syncloop.Deps{Handler: &recorder{}, Config: cfg,
			PLEG: &events{ch: make(chan pleg.PodEvents)}, Runtime: &checker{}, Pods: newPodSet()}, syncloop.Options{})
		require.NoError(t, err)
		close(cfg.changes)
		require.ErrorContains(t, l.Run(t.Context()), "desired state ended")
		require.ErrorIs(t, l.Run(t.Context()), runtime.ErrAlreadyRunning)
	})
}

// TestAnInputClosedAfterTheContextIsNoError closes an input after the loop's context ended,
// as a PLEG under the same context does, before contexts derived from it have ended.
func TestAnInputClosedAfterTheContextIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ev := &events{ch: make(chan pleg.PodEvents)}
		l, err := syncloop.New(syncloop.Deps{Handler: &recorder{},
			Config: &config{changes: make(chan podconfig.Change)}, PLEG: ev, Runtime: &checker{}, Pods: newPodSet()},
			syncloop.Options{})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- l.Run(detached{ctx}) }()
		synctest.Wait()
		cancel()
		close(ev.ch)
		require.NoError(t, <-ended)
	})
}

// detached is a context whose end does not end derived contexts.
type detached struct{ context.Context }

func (detached) Value(any) any                { return nil }
func (detached) AfterFunc(func()) func() bool { return func() bool { return true } }

func TestNewNamesAllThatIsMissing(t *testing.T) {
	_, err := syncloop.New(syncloop.Deps{}, syncloop.Options{})
	for _, name := range []string{"Handler", "Config", "PLEG", "Runtime", "Pods"} {
		require.ErrorContains(t, err, "Deps."+name)
	}
	_, err = syncloop.NewHandler(syncloop.HandlerDeps{}, syncloop.HandlerOptions{})
	for _, name := range []string{"Pods", "Workers", "Status", "Runtime", "PodsDir"} {
		require.ErrorContains(t, err, name)
	}
}

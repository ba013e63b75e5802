package status_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// endSink is a sink that also records the ends of pods, as "<second> <pod> gone
// after <last phase> <last message>".
type endSink struct{ *sink }

func (k endSink) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	s := v1.PodStatus{Phase: "nothing"}
	if last != nil {
		s = *last
	}
	return k.record(ctx, pod.UID, "gone after "+string(s.Phase)+" "+s.Message, s)
}

func managedEnds(t *testing.T, opts status.Options, f func(m *status.Store, k *sink)) {
	t.Helper()
	managedWith(t, opts, func(k *sink) status.Sink { return endSink{k} }, f)
}

func ref(uid types.UID) runtime.PodRef { return runtime.RefOf(named(uid)) }

func TestEndOfAPod(t *testing.T) {
	managedEnds(t, status.Options{}, func(m *status.Store, k *sink) {
		m.Set(named("a"), phased(v1.PodRunning, ""))
		m.Set(named("b"), phased(v1.PodRunning, ""))
		m.Terminate(named("a"))
		m.Terminate(named("b"))
		k.deliveries()
		m.Prune(func(uid types.UID) bool { return uid == "b" })
		assert.Equal(t, "0 a gone after Failed", k.deliveries())
		m.Forget("b")
		assert.Equal(t, "0 b gone after Failed", k.deliveries())
		m.Forget("b")
		assert.Empty(t, k.deliveries())

		m.PodEnded(ref("c"))
		assert.Equal(t, "0 c gone after nothing", k.deliveries())
		m.Set(named("d"), phased(v1.PodFailed, "refused"))
		m.PodEnded(ref("d"))
		assert.Equal(t, "0 d Failed refused\n0 d gone after Failed refused", k.deliveries())
		assert.Zero(t, m.Entries())
	})
}

func TestEndIsRepeatedUntilItIsAccepted(t *testing.T) {
	managedEnds(t, status.Options{RetryMin: time.Second, RetryMax: 4 * time.Second}, func(m *status.Store, k *sink) {
		ended := make(chan struct{})
		k.answer = func(_ context.Context, uid types.UID, _ v1.PodStatus) error {
			<-ended // the first call returns after the end of the pod, whose status it delivers for the last time
			if time.Since(k.start) < 10*time.Second {
				return errors.New("no connection")
			}
			if uid == "b" {
				return status.ErrGone
			}
			return nil
		}
		m.Set(named("a"), phased(v1.PodFailed, ""))
		m.Forget("a")
		m.PodEnded(ref("a"))
		close(ended)
		time.Sleep(time.Hour)
		assert.Equal(t, "0 a Failed\n1 a gone after Failed\n3 a gone after Failed\n7 a gone after Failed\n11 a gone "+
			"after Failed", k.deliveries())
		m.PodEnded(ref("b"))
		assert.Equal(t, "3600 b gone after nothing", k.deliveries())
		assert.Zero(t, m.Entries())
	})
}

// What is delivered of a UID that comes again is in order.
func TestEndBeforeTheNextPodOfTheUID(t *testing.T) {
	managedEnds(t, status.Options{RetryMin: time.Second, RetryMax: time.Second}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error {
			time.Sleep(10 * time.Second)
			if time.Since(k.start) < 15*time.Second {
				return errors.New("no connection")
			}
			return nil
		}
		m.Set(named("a"), phased(v1.PodRunning, "1"))
		synctest.Wait()
		m.Set(named("a"), phased(v1.PodFailed, "1"))
		m.Forget("a")
		m.Set(named("a"), phased(v1.PodPending, "2"))
		time.Sleep(time.Minute)
		assert.Equal(t, "0 a Running 1\n11 a Failed 1\n21 a gone after Failed 1\n31 a Pending 2", k.deliveries())

		// While the end of one is being delivered, the next one comes and ends.
		m.Forget("a")
		synctest.Wait()
		m.Set(named("a"), phased(v1.PodRunning, "3"))
		m.Forget("a")
		m.Set(named("a"), phased(v1.PodRunning, "4"))
		time.Sleep(time.Minute)
		assert.Equal(t, "60 a gone after Pending 2\n70 a gone after Running 3\n80 a Running 4", k.deliveries())
		m.Forget("a")
		time.Sleep(time.Minute)
		assert.Zero(t, m.Entries())
	})
}

// A sink that has no use for ends embeds SinkBase.
func TestEndWithoutUse(t *testing.T) {
	managed(t, status.Options{}, func(m *status.Store, k *sink) {
		m.PodEnded(ref("a"))
		m.Set(named("b"), phased(v1.PodRunning, ""))
		m.PodEnded(ref("b"))
		assert.Equal(t, "0 b Running", k.deliveries())
		assert.Zero(t, m.Entries())
	})
	m, err := status.New(status.Options{})
	require.NoError(t, err)
	m.PodEnded(ref("a"))
	m.Set(named("b"), phased(v1.PodRunning, ""))
	m.Set(named("c"), phased(v1.PodRunning, ""))
	m.PodEnded(ref("b"))
	assert.Equal(t, 1, m.Entries())
	_, ok := m.Get("b")
	assert.False(t, ok)
}

// A pod that is refused before the agent knows what runs: its phase is held back,
// and delivered as soon as it is certain that nothing of it runs.
func TestRecheck(t *testing.T) {
	running := map[types.UID]bool{"a": true, "b": true}
	asked := 0
	mayRun := func(uid types.UID) bool {
		asked++
		return running[uid]
	}
	managedEnds(t, status.Options{MayRun: mayRun}, func(m *status.Store, k *sink) {
		for i := range 100 {
			m.Set(named(types.UID(fmt.Sprint(i))), phased(v1.PodRunning, ""))
		}
		k.deliveries()
		assert.Zero(t, asked, "only a final phase can be held back")
		m.Set(named("a"), phased(v1.PodFailed, "refused"))
		m.Set(named("b"), phased(v1.PodSucceeded, ""))
		assert.ElementsMatch(t, []string{"0 a Pending", "0 b Pending"}, strings.Split(k.deliveries(), "\n"))
		s, _ := m.Get("a")
		assert.Equal(t, v1.PodFailed, s.Phase)
		asked = 0
		m.Recheck()
		assert.Empty(t, k.deliveries())
		assert.Equal(t, 2, asked, "only pods that are held back cost something")

		running["a"] = false
		m.Recheck()
		assert.Equal(t, "0 a Failed refused", k.deliveries())
		asked = 0
		m.Recheck()
		assert.Equal(t, 1, asked)
		assert.Empty(t, k.deliveries())

		m.Forget("b") // what is gone does not run
		assert.Equal(t, "0 b Succeeded\n0 b gone after Succeeded", k.deliveries())
		m.Recheck()
		assert.Equal(t, 1, asked)
	})
}

// Whatever a sink does and in whatever order pods come and go, once it is well
// again it has the latest of every pod, or its end, in order, and never had two
// calls for one pod at once.
func TestPodsComeAndGo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := status.Options{Concurrency: rapid.IntRange(1, 3).Draw(rt, "concurrency"),
			DeliveryTimeout: 2 * time.Second}
		managedEnds(t, opts, func(m *status.Store, k *sink) {
			delays := rapid.SliceOfN(rapid.IntRange(0, 8000), 20, 20).Draw(rt, "delays")
			fails := rapid.SliceOfN(rapid.Bool(), 20, 20).Draw(rt, "fails")
			n, well := 0, false
			k.answer = func(context.Context, types.UID, v1.PodStatus) error {
				k.mu.Lock()
				i, fail := n%20, fails[n%20] && !well
				n++
				k.mu.Unlock()
				time.Sleep(time.Duration(delays[i]) * time.Millisecond)
				if fail {
					return errors.New("no connection")
				}
				return nil
			}
			uids := []types.UID{"a", "b", "c"}
			last := map[types.UID]string{} // what the sink must have at the end
			for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
				uid := rapid.SampledFrom(uids).Draw(rt, "pod")
				switch _, known := m.Get(uid); rapid.IntRange(0, 3).Draw(rt, "step") {
				case 0:
					m.Forget(uid)
					if known {
						last[uid] = "gone after " + last[uid]
					}
				case 1:
					m.PodEnded(ref(uid))
					if known {
						last[uid] = "gone after " + last[uid]
					} else if last[uid] == "" {
						last[uid] = "gone after nothing"
					}
				default:
					last[uid] = fmt.Sprint("Running ", i+1)
					m.Set(named(uid), phased(v1.PodRunning, fmt.Sprint(i+1)))
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "pause")) * time.Millisecond)
			}
			k.mu.Lock()
			well = true
			k.mu.Unlock()
			time.Sleep(time.Hour)
			log := k.deliveries()
			if strings.Contains(log, "TWICE") {
				rt.Fatalf("a pod was delivered twice at once:\n%s", log)
			}
			if err := m.Healthy(); err != nil {
				rt.Fatal(err)
			}
			final := map[string]string{}
			newest := map[string]int{}
			for line := range strings.SplitSeq(strings.TrimSpace(log), "\n") {
				if line == "" {
					continue
				}
				f := strings.Fields(line)
				final[f[1]] = strings.Join(f[2:], " ")
				var version int
				_, _ = fmt.Sscan(f[len(f)-1], &version)
				if version > 0 && version < newest[f[1]] {
					rt.Fatalf("pod %s went back:\n%s", f[1], log)
				}
				newest[f[1]] = max(version, newest[f[1]])
			}
			live := 0
			for uid, want := range last {
				got := final[string(uid)]
				if got != want && !(strings.HasPrefix(want, "gone") && got == "gone after nothing") {
					rt.Fatalf("pod %s: the sink has %q, want %q:\n%s", uid, got, want, log)
				}
				if !strings.HasPrefix(want, "gone") {
					live++
				}
			}
			if m.Entries() != live {
				rt.Fatalf("%d entries of %d pods", m.Entries(), live)
			}
		})
	})
}

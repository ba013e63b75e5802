package podworkerstest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/bubble"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// recovery is the time after which workers must have repeated a failed call. It is
// longer than any sensible back-off.
const recovery = time.Hour

// Factory makes the workers that [Suite] tests.
type Factory struct {
	// New returns workers without pods that call the syncer with statuses from the
	// cache. Each test calls it once, in its bubble of virtual time.
	New func(t *testing.T, syncer podworkers.Syncer, cache runtime.StatusCache) podworkers.Workers
	// Within is the longest time from an update or the end of a call to the begin of
	// the next call, if it has to wait for nothing. Default: 100 ms.
	Within time.Duration
}

// Suite runs all tests, each as a subtest.
func Suite(t *testing.T, f Factory) {
	if f.Within <= 0 {
		f.Within = 100 * time.Millisecond
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { run(t, &f, c.run) })
		})
	}
}

var cases = []struct {
	name string
	run  func(e *env)
}{
	{"Life", testLife},
	{"MergedUpdates", testMergedUpdates},
	{"FreshStatus", testFreshStatus},
	{"RetryAfter", testRetryAfter},
	{"FailedCalls", testFailedCalls},
	{"Panic", testPanic},
	{"UnreadableStatus", testUnreadableStatus},
	{"HungCall", testHungCall},

	{"KillCancelsSync", testKillCancelsSync},
	{"KillIsNotUndone", testKillIsNotUndone},
	{"GracePeriod", testGracePeriod},
	{"ShorterGracePeriod", testShorterGracePeriod},
	{"LateEviction", testLateEviction},
	{"Done", testDone},
	{"KillBeforeStart", testKillBeforeStart},
	{"EndsInAPI", testEndsInAPI},
	{"EndsByItself", testEndsByItself},
	{"FailureForGood", testFailureForGood},
	{"FailureForGoodAndKill", testFailureForGoodAndKill},

	{"NextIncarnation", testNextIncarnation},
	{"NextIncarnationIsKilled", testNextIncarnationIsKilled},
	{"NextIncarnationAfterFailure", testNextIncarnationAfterFailure},
	{"FullName", testFullName},
	{"KillWhileWaiting", testKillWhileWaiting},
	{"KillOfAnEarlierStart", testKillOfAnEarlierStart},
	{"TerminatingByFullName", testTerminatingByFullName},
	{"Orphan", testOrphan},
	{"PodAfterOrphan", testPodAfterOrphan},

	{"SyncKnownPods", testSyncKnownPods},
	{"UndesiredPod", testUndesiredPod},
	{"UnknownPod", testUnknownPod},
	{"OnlyKnown", testOnlyKnown},
	{"Updated", testUpdated},
	{"Drain", testDrain},
	{"DrainOfPodsToStart", testDrainOfPodsToStart},
	{"InvalidUpdate", testInvalidUpdate},
	{"BeforeRun", testBeforeRun},
	{"RunJoins", testRunJoins},
	{"RunTwice", testRunTwice},
	{"Random", testRandom},
}

// env is one test under way.
type env struct {
	*testing.T
	*fake.Syncer
	f     *Factory
	w     podworkers.Workers
	cache *cache
	check *checker
	// stop ends Run; nil before start. ran has the result of Run.
	stop context.CancelFunc
	ran  chan error

	mu sync.Mutex
	// answer is the outcome of calls; nil: they succeed.
	answer func(fake.Call) (podworkers.Result, error)
	// running has the pods with a running container.
	running map[types.UID]bool
}

func run(t *testing.T, f *Factory, test func(e *env)) {
	e := &env{T: t, Syncer: fake.NewSyncer(), f: f, ran: make(chan error, 1), running: map[types.UID]bool{}}
	e.cache = &cache{Cache: runtime.NewCache(e, runtime.CacheOptions{})}
	e.check = &checker{t: t, Syncer: e.Syncer, lives: map[types.UID]*life{}}
	e.Syncer.Answer(e.respond)
	e.w = f.New(t, e.check, e.cache)
	defer func() { // also if the test has failed half-way
		if e.stop != nil {
			e.stop()
			synctest.Wait()
		}
	}()
	test(e)
	if e.stop != nil {
		e.end()
	}
	assert.Zero(t, e.Overlaps(), "two calls for one pod at once")
}

// start begins Run.
func (e *env) start() {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(e.Context())
	go func() { e.ran <- e.w.Run(ctx) }()
	synctest.Wait()
}

// end ends Run. It must not wait for anything but for calls under way.
func (e *env) end() {
	e.Helper()
	e.stop()
	synctest.Wait()
	select {
	case err := <-e.ran:
		require.NoError(e, err, "Run")
	default:
		require.Fail(e, "Run does not return when its context has ended and no call is under way")
	}
}

// answers sets the outcome of calls.
func (e *env) answers(f func(fake.Call) (podworkers.Result, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = f
}

// respond is the outcome of a call. A successful one changes what runs.
func (e *env) respond(c fake.Call) (r podworkers.Result, err error) {
	e.mu.Lock()
	answer := e.answer
	e.mu.Unlock()
	if answer != nil {
		r, err = answer(c)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.running[c.Pod.UID] = c.Method == fake.SyncPod && !r.Terminal
	}
	return r, err
}

// InspectPod implements [runtime.Inspector].
func (e *env) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &runtime.PodStatus{PodRef: ref}
	if e.running[ref.UID] {
		s.Containers = []runtime.ContainerStatus{{Container: runtime.Container{Name: "main",
			State: runtime.ContainerRunning}}}
	}
	return s, nil
}

// runs sets whether the runtime has a running container of the pod.
func (e *env) runs(uid types.UID, running bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running[uid] = running
}

// pass lets the time pass in which calls that are due must begin.
func (e *env) pass() {
	time.Sleep(e.f.Within)
	synctest.Wait()
}

// recover lets the time pass in which failed calls must be repeated.
func (e *env) recover() {
	time.Sleep(recovery)
	synctest.Wait()
}

// called lets time pass and returns the calls for the pod since the test began: the
// type of a SyncPod, "terminating" with the grace period, "orphan" or "terminated",
// each with "!" in front if it failed and "…" after it while it is under way. A
// SyncPod of type Sync is left out: workers may call it at any time.
func (e *env) called(uid types.UID) []string {
	e.Helper()
	e.pass()
	var out []string
	for _, c := range e.Calls(uid) {
		text := "terminated"
		switch c.Method {
		case fake.SyncPod:
			if text = c.Type.String(); c.Type == podworkers.Sync {
				continue
			}
		case fake.SyncTerminatingPod:
			if text = "terminating"; c.Grace != nil {
				text = fmt.Sprintf("terminating %d", *c.Grace)
			}
		case fake.SyncTerminatingOrphan:
			text = "orphan"
		}
		if c.Err != nil {
			text = "!" + text
		}
		if c.Ended.IsZero() {
			text += "…"
		}
		out = append(out, text)
	}
	return out
}

// last returns the last call of the method for the pod.
func (e *env) last(m fake.Method, uid types.UID) fake.Call {
	e.Helper()
	calls := e.Calls(uid)
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].Method == m {
			return calls[i]
		}
	}
	require.Failf(e, "missing call", "%s was not called for pod %s", m, uid)
	return fake.Call{}
}

// count returns the number of calls of the method for the pod.
func (e *env) count(m fake.Method, uid types.UID) (n int) {
	for _, c := range e.Calls(uid) {
		if c.Method == m {
			n++
		}
	}
	return n
}

// predecessor returns the UID of the pod whose end the pod waits for, or nothing.
func (e *env) predecessor(uid types.UID) types.UID {
	before, ok := e.w.Predecessor(uid)
	assert.Equal(e, ok, before.UID != "")
	return before.UID
}

func (e *env) update(typ podworkers.UpdateType, pod *v1.Pod) {
	e.w.UpdatePod(podworkers.Update{Type: typ, Pod: pod})
}

// kill kills the pod, with the options that set something.
func (e *env) kill(pod *v1.Pod, options ...func(*podworkers.KillOptions)) {
	k := &podworkers.KillOptions{}
	for _, option := range options {
		option(k)
	}
	e.w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: k})
}

func within(seconds int64) func(*podworkers.KillOptions) {
	return func(k *podworkers.KillOptions) { k.GracePeriod = &seconds }
}

func evicting(k *podworkers.KillOptions) { k.Evict, k.Status = true, failing("Evicted") }

func counting(n *int) func(*podworkers.KillOptions) {
	return func(k *podworkers.KillOptions) { k.Done = func() { *n++ } }
}

func failing(reason string) func(*v1.PodStatus) {
	return func(s *v1.PodStatus) { s.Phase, s.Reason = v1.PodFailed, reason }
}

// reason returns the reason that the override of a termination sets.
func reason(c fake.Call) string {
	var s v1.PodStatus
	if c.Override != nil {
		c.Override(&s)
	}
	return s.Reason
}

// apiPod is a pod of an API server with a grace period of 30 s.
func apiPod(uid types.UID) *v1.Pod {
	return testpod.New("pod-"+string(uid), testpod.UID(uid), testpod.Grace(30))
}

// staticPod is a pod of a file, of the full name "<name>_default".
func staticPod(uid types.UID, name string) *v1.Pod {
	return testpod.New(name, testpod.UID(uid), testpod.Grace(30), testpod.Static)
}

func orphan(uid types.UID, done func()) podworkers.Update {
	ref := runtime.RefOf(apiPod(uid))
	return podworkers.Update{Type: podworkers.Kill, Orphan: &runtime.Pod{PodRef: ref},
		Kill: &podworkers.KillOptions{Done: done}}
}

// cache is a status cache that can fail.
type cache struct {
	*runtime.Cache
	mu  sync.Mutex
	err error
}

func (c *cache) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cache) Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error) {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return c.Cache.Newer(ctx, ref, after)
}

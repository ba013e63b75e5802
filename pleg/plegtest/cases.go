package plegtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	created  = runtime.ContainerCreated
	running  = runtime.ContainerRunning
	exited   = runtime.ContainerExited
	ready    = runtime.SandboxReady
	notReady = runtime.SandboxNotReady
)

// recovery is the time after which a generator must have recovered from any failure of
// the runtime, and must have noticed one that lasts.
const recovery = time.Hour

// cases returns the tests in the order in which a generator is best brought up.
func cases() []testCase {
	return []testCase{
		{"ExistingPods", false, testExistingPods},
		{"LifeOfAContainer", false, testLife},
		{"Restart", false, testRestart},
		{"GonePod", false, testGonePod},
		{"ManyPods", false, testManyPods},
		{"Idle", false, testIdle},
		{"SlowReader", false, testSlowReader},
		{"StateThatOnlyTheCacheSaw", false, testStateThatOnlyTheCacheSaw},
		{"CacheIsNewer", false, testCacheIsNewer},
		{"Random", false, testRandom},
		{"HungInspection", true, testHungInspection},
		{"FailedInspection", true, testFailedInspection},
		{"FailedList", true, testFailedList},
		{"HungList", true, testHungList},
		{"HealthyHasNoSideEffects", false, testHealthy},
		{"RunTwice", false, testRunTwice},
		{"Watch", false, testWatch},
		{"EndedContext", false, testEndedContext},
		{"EndsWhileAListHangs", true, testEndsWhileAListHangs},
		{"EndsWhileAnInspectionHangs", false, testEndsWhileAnInspectionHangs},
		{"EndsWhileEventsWait", false, testEndsWhileEventsWait},
		{"Relist", false, testRelist},
		{"Hold", false, testHold},
	}
}

func testExistingPods(e *env) {
	e.Set("p", Sandbox("s", ready), Container("a", running), Container("b", exited))
	e.Set("q", Sandbox("t", notReady))
	e.start()
	e.pass()
	e.drain()
	assert.ElementsMatch(e, []pleg.Event{
		sandbox(pleg.SandboxStarted, "s"), container(pleg.ContainerStarted, "a"), container(pleg.ContainerDied, "b"),
	}, e.got["p"])
	assert.Equal(e, []pleg.Event{sandbox(pleg.SandboxDied, "t")}, e.got["q"])
	e.wantsTruth("p", "q")
}

func testLife(e *env) {
	e.start()
	e.wants("p")
	e.Set("p", Sandbox("s", ready))
	e.wants("p", sandbox(pleg.SandboxStarted, "s"))
	e.Set("p", Sandbox("s", ready), Container("a", created))
	e.wants("p", container(pleg.ContainerChanged, "a"))
	e.Set("p", Sandbox("s", ready), Container("a", running))
	e.wants("p", container(pleg.ContainerStarted, "a"))
	e.Set("p", Sandbox("s", ready), Container("a", exited))
	e.wants("p", container(pleg.ContainerDied, "a"))
	e.wantsTruth("p")
	e.Set("p", Sandbox("s", notReady))
	e.wants("p", container(pleg.ContainerRemoved, "a"), sandbox(pleg.SandboxDied, "s"))
	e.Set("p")
	e.wants("p", sandbox(pleg.SandboxRemoved, "s"))
	e.wantsTruth("p")
}

// testRestart changes a pod several times before a generator has to look.
func testRestart(e *env) {
	e.Set("p", Sandbox("s", ready), Container("a", running))
	e.start()
	e.pass()
	e.drain()
	e.Set("p", Sandbox("s", ready), Container("b", running), Container("a", exited))
	e.wants("p", container(pleg.ContainerStarted, "b"), container(pleg.ContainerDied, "a"))
	e.wantsTruth("p")
}

func testGonePod(e *env) {
	e.Set("p", Sandbox("s", ready), Container("a", running))
	e.start()
	e.pass()
	e.drain()
	e.Set("p")
	e.wants("p", container(pleg.ContainerDied, "a"), container(pleg.ContainerRemoved, "a"),
		sandbox(pleg.SandboxDied, "s"), sandbox(pleg.SandboxRemoved, "s"))
	e.wantsTruth("p")
	e.Set("p", Sandbox("t", ready))
	e.wants("p", sandbox(pleg.SandboxStarted, "t"))
	e.wantsTruth("p")
}

func testManyPods(e *env) {
	const pods = 300
	var uids []types.UID
	for i := range pods {
		uids = append(uids, types.UID(fmt.Sprint("p", i)))
		e.Set(uids[i], Container(fmt.Sprint("c", i), running))
	}
	e.start()
	e.pass()
	require.Len(e, e.drain(), pods)
	for i := range uids {
		e.Set(uids[i], Container(fmt.Sprint("c", i), exited))
	}
	e.pass()
	require.Len(e, e.drain(), pods)
	for i, uid := range uids {
		c := fmt.Sprint("c", i)
		assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, c), container(pleg.ContainerDied, c)}, e.got[uid])
	}
	e.wantsTruth(uids...)
}

// testIdle checks that nothing is reported, and that no pod is inspected, while nothing
// changes.
func testIdle(e *env) {
	e.Set("p", Sandbox("s", ready), Container("a", running), Container("b", exited))
	e.start()
	e.pass()
	e.drain()
	before := e.Inspections("p")
	time.Sleep(recovery)
	assert.Empty(e, e.drain())
	assert.Equal(e, before, e.Inspections("p"), "inspections of a pod that does not change")
}

func testSlowReader(e *env) {
	e.Set("p", Container("0", running))
	e.Set("q", Container("x", running))
	e.start()
	e.pass()
	for i := range 50 {
		e.Set("p", Container(fmt.Sprint(i+1), running), Container(fmt.Sprint(i), exited))
		e.pass()
	}
	items := e.drain()
	assert.Len(e, items, 2, "one item for each pod")
	for i := range 50 {
		for _, t := range []pleg.Type{pleg.ContainerStarted, pleg.ContainerDied} {
			assert.Contains(e, e.got["p"], container(t, fmt.Sprint(i)))
		}
		if i > 0 {
			assert.Contains(e, e.got["p"], container(pleg.ContainerRemoved, fmt.Sprint(i-1)))
		}
	}
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "x")}, e.got["q"])
	e.wantsTruth("p", "q")
}

// testStateThatOnlyTheCacheSaw: another user of the cache reads a state that is over
// when the generator looks. The reader must receive that it came and that it went, and
// the cache must not keep it.
func testStateThatOnlyTheCacheSaw(e *env) {
	e.Set("p", Sandbox("s", ready), Container("a", running))
	e.start()
	e.pass()
	e.drain()
	e.Set("p", Sandbox("s", ready), Container("b", running), Container("a", running))
	status, err := e.cache.Newer(e.Context(), Ref("p"), e.cache.Now())
	require.NoError(e, err)
	require.Equal(e, "a=running b=running s=ready", Format(status))
	e.Set("p", Sandbox("s", ready), Container("a", running))
	e.wants("p", container(pleg.ContainerStarted, "b"), container(pleg.ContainerDied, "b"),
		container(pleg.ContainerRemoved, "b"))
	e.wantsTruth("p")
}

// testCacheIsNewer has pods change while they are listed and inspected, and the reader
// take each item at once. Every item is compared with the cache; see checkCache.
func testCacheIsNewer(e *env) {
	e.Do(func(s *State) { s.ListTakes, s.InspectTakes = 70*time.Millisecond, 50*time.Millisecond })
	e.start()
	uids := []types.UID{"p", "q", "r"}
	for i := range 200 {
		uid := uids[i%len(uids)]
		c := fmt.Sprint(uid, i/6)
		state := []runtime.ContainerState{running, exited}[i/3%2]
		e.Set(uid, Sandbox("s-"+string(uid), ready), Container(c, state))
		time.Sleep(time.Duration(13+i%7*11) * time.Millisecond)
		e.drain()
	}
	e.pass()
	e.drain()
	e.wantsTruth(uids...)
}

// testRandom makes, ends and removes containers at random times. Each state lasts long
// enough to be seen, so each start, end and removal must be reported once.
func testRandom(e *env) {
	random := rand.New(rand.NewPCG(1, 2))
	uids := []types.UID{"p", "q", "r", "s"}
	pods := map[types.UID][]runtime.Container{}
	want := map[types.UID][]pleg.Event{}
	e.start()
	for made := range 200 {
		e.Do(func(s *State) {
			s.ListTakes = time.Duration(random.IntN(100)) * time.Millisecond
			s.InspectTakes = time.Duration(random.IntN(100)) * time.Millisecond
		})
		for _, uid := range uids {
			note := func(c runtime.Container, t pleg.Type) { want[uid] = append(want[uid], container(t, c.ID.ID)) }
			list := pods[uid]
			switch random.IntN(4) {
			case 0:
				c := runtime.Container{ID: runtime.ContainerID{Type: "test", ID: fmt.Sprint(uid, made)}, State: running}
				list = append([]runtime.Container{c}, list...)
				note(c, pleg.ContainerStarted)
			case 1:
				if i := slices.IndexFunc(list, func(c runtime.Container) bool { return c.State == running }); i >= 0 {
					list[i].State = exited
					note(list[i], pleg.ContainerDied)
				}
			case 2:
				if i := slices.IndexFunc(list, func(c runtime.Container) bool { return c.State == exited }); i >= 0 {
					note(list[i], pleg.ContainerRemoved)
					list = slices.Delete(list, i, i+1)
				}
			}
			pods[uid] = list
			var parts []Part
			for _, c := range list {
				parts = append(parts, Container(c.ID.ID, c.State))
			}
			e.Set(uid, parts...)
		}
		time.Sleep(e.f.Within + time.Duration(random.IntN(1000))*time.Millisecond)
		if random.IntN(3) > 0 { // the reader is slow now and then
			e.drain()
		}
	}
	e.pass()
	e.drain()
	for _, uid := range uids {
		assert.ElementsMatch(e, want[uid], e.got[uid], "events of pod %s", uid)
	}
	e.wantsTruth(uids...)
}

func testHungInspection(e *env) {
	hung := []types.UID{"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"}
	for _, uid := range hung {
		e.Do(func(s *State) { s.Hung[uid] = true })
		e.Set(uid, Container(string(uid), running))
	}
	e.Set("p", Container("0", running))
	e.start()
	e.pass()
	e.drain()
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "0")}, e.got["p"])
	for i := range 20 {
		e.Set("p", Container(fmt.Sprint(i+1), running), Container(fmt.Sprint(i), exited))
		e.pass()
		e.drain()
		assert.Contains(e, e.got["p"], container(pleg.ContainerDied, fmt.Sprint(i)))
		assert.NoError(e, e.g.Healthy(), "pods that hang are not the runtime")
	}
	for _, uid := range hung {
		assert.Empty(e, e.got[uid])
	}
	e.Set("h1", Container("h1", exited))
	e.Do(func(s *State) { clear(s.Hung) })
	time.Sleep(recovery)
	e.drain()
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "h1"), container(pleg.ContainerDied, "h1")},
		e.got["h1"])
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "h2")}, e.got["h2"])
	e.wantsTruth(append(hung, "p")...)
}

func testFailedInspection(e *env) {
	e.Set("p", Container("a", running))
	e.start()
	e.pass()
	e.drain()
	e.Do(func(s *State) { s.Broken["p"] = true })
	e.Set("p", Container("b", running), Container("a", exited))
	e.pass()
	e.Set("p", Container("b", exited), Container("a", exited))
	e.pass()
	assert.Empty(e, e.drain(), "events of a pod whose status could not be read")
	status, _ := e.cache.Get("p")
	assert.Equal(e, "a=running", Format(status), "an error replaces no status")
	e.Do(func(s *State) { clear(s.Broken) })
	time.Sleep(recovery)
	e.drain()
	assert.Subset(e, e.got["p"], []pleg.Event{container(pleg.ContainerDied, "a"), container(pleg.ContainerDied, "b")})
	e.wantsTruth("p")
}

func testFailedList(e *env) {
	cause := errors.New("list fails")
	e.testLists(func(s *State) { s.ListErr = cause }, func(s *State) { s.ListErr = nil }, cause)
}

func testHungList(e *env) {
	e.testLists(func(s *State) { s.ListHangs = true }, func(s *State) { s.ListHangs = false }, nil)
}

// testLists breaks the list call, and then the stream with it.
func (e *env) testLists(fail, repair func(*State), cause error) {
	e.Set("p", Container("a", running))
	e.start()
	e.pass()
	e.drain()
	require.NoError(e, e.g.Healthy())

	e.Do(fail)
	e.BreakStream(runtime.ErrUnavailable)
	e.Set("p", Container("a", exited))
	time.Sleep(recovery)
	synctest.Wait()
	err := e.g.Healthy()
	require.Error(e, err, "no list call has succeeded for %s", recovery)
	if cause != nil {
		assert.ErrorIs(e, err, cause)
	}
	e.drain()

	e.Do(repair)
	e.Do(func(s *State) { s.Stream.Refuses = nil })
	time.Sleep(recovery)
	e.drain()
	require.NoError(e, e.g.Healthy())
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "a"), container(pleg.ContainerDied, "a")}, e.got["p"])
	e.wantsTruth("p")
}

func testHealthy(e *env) {
	e.Set("p", Container("a", running))
	require.Error(e, e.g.Healthy(), "before Run")
	assert.Zero(e, e.Lists())
	e.start()
	e.pass()
	e.drain()
	lists, inspections := e.Lists(), e.Inspections("p")
	for range 1000 {
		require.NoError(e, e.g.Healthy())
	}
	synctest.Wait()
	assert.Equal(e, lists, e.Lists(), "Healthy causes list calls")
	assert.Equal(e, inspections, e.Inspections("p"), "Healthy causes inspections")
	e.end()
	require.Error(e, e.g.Healthy(), "after Run")
}

func testRunTwice(e *env) {
	e.start()
	require.ErrorIs(e, e.g.Run(e.Context()), runtime.ErrAlreadyRunning)
	e.Set("p", Container("a", running))
	e.wants("p", container(pleg.ContainerStarted, "a"))
	e.end()
	require.ErrorIs(e, e.g.Run(e.Context()), runtime.ErrAlreadyRunning)
}

func testWatch(e *env) {
	before := e.g.Watch()
	e.start()
	assert.Equal(e, before, e.g.Watch(), "the channel is always the same")
	e.Set("p", Container("a", running))
	e.pass()
	assert.Equal(e, before, e.g.Watch(), "the channel is always the same")
	e.end()
	assert.Equal(e, before, e.g.Watch(), "the channel is always the same")
}

func testEndedContext(e *env) {
	ctx, cancel := context.WithCancelCause(e.Context())
	cancel(errors.New("any"))
	e.Set("p", Container("a", running))
	require.NoError(e, e.g.Run(ctx))
	_, open := <-e.g.Watch()
	require.False(e, open)
}

func testEndsWhileAListHangs(e *env) {
	e.Do(func(s *State) { s.ListHangs = true })
	e.start()
	e.pass()
	e.end()
}

func testEndsWhileAnInspectionHangs(e *env) {
	e.Do(func(s *State) { s.Hung["p"] = true })
	e.Set("p", Container("a", running))
	e.start()
	e.pass()
	e.end()
}

func testEndsWhileEventsWait(e *env) {
	e.Set("p", Container("a", running))
	e.start()
	e.pass()
	e.end()
}

func testRelist(e *env) {
	e.start()
	e.pass()
	e.Do(func(s *State) { s.Stream.Silent = true })
	e.Set("p", Container("a", running))
	e.g.Relist()
	e.wants("p", container(pleg.ContainerStarted, "a"))
	e.end()
	e.g.Relist() // does not block
	e.g.Relist()
}

// testHold tests that no change of a held pod is lost. How many inspections Hold saves is
// not part of the contract.
func testHold(e *env) {
	e.Set("p", Container("a", running))
	e.start()
	e.pass()
	e.drain()
	e.g.Hold("p")
	e.g.Hold("p")
	e.Set("p", Container("b", running), Container("a", exited))
	e.Set("q", Container("x", running))
	e.pass()
	for _, item := range e.drain() {
		assert.Subset(e, []types.UID{"p", "q"}, []types.UID{item.Pod.UID})
	}
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "x")}, e.got["q"], "a pod that is not held")
	e.g.Release("p")
	e.pass()
	e.g.Release("p")
	e.pass()
	e.drain()
	assert.Equal(e, []pleg.Event{container(pleg.ContainerStarted, "a"), container(pleg.ContainerStarted, "b"),
		container(pleg.ContainerDied, "a")}, e.got["p"])
	e.wantsTruth("p", "q")
}

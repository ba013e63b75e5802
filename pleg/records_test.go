package pleg

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// book drives records by hand. Marks are drawn from a counter of its own.
type book struct {
	t    *testing.T
	rs   records
	mark runtime.Mark
	// known is the mark of the newest status that the cache has of a pod.
	known map[types.UID]runtime.Mark
	// statuses are those that came into the cache before the next relist.
	statuses []*runtime.PodStatus
}

func newBook(t *testing.T) *book { return &book{t: t, known: map[types.UID]runtime.Mark{}} }

func (b *book) draw() runtime.Mark { b.mark++; return b.mark }

// relist returns what became ready and what is to be inspected.
func (b *book) relist(pods ...*runtime.Pod) (ready []string, inspect []*record) {
	w := window{began: b.draw()}
	w.ended = b.draw()
	out := b.rs.relisted(pods, b.statuses, w, func(uid types.UID, mark runtime.Mark) bool {
		if b.known[uid] > mark {
			return false
		}
		delete(b.known, uid)
		return true
	})
	return b.lines(out), out.inspect
}

func (b *book) lines(out outcome) []string {
	ready := []string{}
	for _, p := range out.ready {
		ready = append(ready, fmt.Sprint(p.Pod.UID, words(p.Events)))
	}
	return ready
}

// fly begins an inspection that is expected to be wanted.
func (b *book) fly(r *record) runtime.Mark {
	after, wanted := r.takeOff()
	require.True(b.t, wanted)
	return after
}

func TestRecordsPublishOnlyWhatWasInspected(t *testing.T) {
	b := newBook(t)
	ready, inspect := b.relist(podOf(ctr("a", "running")))
	require.Empty(t, ready)
	require.Len(t, inspect, 1)
	after := b.fly(inspect[0])
	assert.Equal(t, b.mark, after, "the status must have been read after the list call")
	assert.Equal(t, []string{"u[ContainerStarted a]"}, b.lines(inspect[0].landed(b.draw())))

	ready, inspect = b.relist(podOf(ctr("a", "running")))
	assert.Empty(t, ready)
	assert.Empty(t, inspect)
}

func TestRecordsKeepEventsOfFailedInspections(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(ctr("a", "running")))
	b.fly(inspect[0])
	inspect[0].failed()

	// A container comes and goes again while no inspection succeeds.
	for _, pod := range []*runtime.Pod{podOf(ctr("b", "exited"), ctr("a", "running")), podOf(ctr("a", "running"))} {
		ready, inspect := b.relist(pod)
		require.Empty(t, ready)
		require.Len(t, inspect, 1)
		b.fly(inspect[0])
		inspect[0].failed()
	}
	// Nothing changes any more, but there are events.
	_, inspect = b.relist(podOf(ctr("a", "running")))
	require.Len(t, inspect, 1)
	assert.Equal(t, 3, inspect[0].failures)
	b.fly(inspect[0])
	assert.Equal(t, []string{"u[ContainerStarted a ContainerDied b ContainerRemoved b]"}, b.lines(inspect[0].landed(b.draw())))
}

func TestRecordsWhileAnInspectionIsUnderWay(t *testing.T) {
	for _, tc := range []struct {
		name string
		// newer says that the status was read after the second relist.
		newer bool
		want  []string
		again bool
	}{
		{"old status", false, []string{"u[ContainerStarted a]"}, true},
		{"new status", true, []string{"u[ContainerStarted a ContainerDied a]"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBook(t)
			_, inspect := b.relist(podOf(ctr("a", "running")))
			r := inspect[0]
			b.fly(r)
			read := b.draw()
			_, inspect = b.relist(podOf(ctr("a", "exited")))
			require.Empty(t, inspect, "one inspection of a pod at a time")
			if tc.newer {
				read = b.draw()
			}
			out := r.landed(read)
			assert.Equal(t, tc.want, b.lines(out))
			if !tc.again {
				assert.Empty(t, out.inspect)
				return
			}
			require.Equal(t, []*record{r}, out.inspect)
			b.fly(r)
			assert.Equal(t, []string{"u[ContainerDied a]"}, b.lines(r.landed(b.draw())))
		})
	}
}

func TestRecordsOfGonePods(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(ctr("a", "running")))
	b.fly(inspect[0])
	b.known["u"] = b.draw()
	inspect[0].landed(b.known["u"])

	ready, inspect := b.relist()
	assert.Equal(t, []string{"u[ContainerDied a ContainerRemoved a]"}, ready)
	assert.Empty(t, inspect)
	assert.Empty(t, b.known, "its status is forgotten")
	assert.Empty(t, b.rs.pods)

	ready, inspect = b.relist()
	assert.Empty(t, ready)
	assert.Empty(t, inspect)
}

func TestRecordsOfGonePodThatWasReadMeanwhile(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(ctr("a", "running")))
	b.fly(inspect[0])
	inspect[0].landed(b.draw())

	b.known["u"] = b.mark + 2 // read between the two marks of the list call
	ready, inspect := b.relist()
	assert.Empty(t, ready, "the status that is known may be older than the list")
	require.Len(t, inspect, 1)
	b.known["u"] = b.draw()
	b.fly(inspect[0])
	assert.Equal(t, []string{"u[ContainerDied a ContainerRemoved a]"}, b.lines(inspect[0].landed(b.known["u"])))
	assert.Len(t, b.rs.pods, 1, "until the status is forgotten")

	ready, inspect = b.relist()
	assert.Empty(t, ready)
	assert.Empty(t, inspect)
	assert.Empty(t, b.known)
	assert.Empty(t, b.rs.pods)
}

func TestRecordsOfPodThatGoesWhileItsInspectionHangs(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(ctr("a", "running")))
	r := inspect[0]
	b.fly(r)

	ready, _ := b.relist()
	assert.Equal(t, []string{"u[ContainerStarted a ContainerDied a ContainerRemoved a]"}, ready)
	require.Len(t, b.rs.pods, 1)

	// The pod comes again: its inspection waits for the one under way.
	ready, inspect = b.relist(podOf(ctr("b", "running")))
	assert.Empty(t, ready)
	assert.Empty(t, inspect)
	out := r.landed(1)
	assert.Empty(t, out.ready)
	require.Equal(t, []*record{r}, out.inspect)
	b.fly(r)
	assert.Equal(t, []string{"u[ContainerStarted b]"}, b.lines(r.landed(b.draw())))

	// And again, with nothing after it.
	b.relist(podOf(ctr("b", "exited")))
	b.fly(r)
	b.relist()
	r.failed()
	b.relist()
	assert.Empty(t, b.rs.pods)
}

func TestRecordsOfPodThatGoesBeforeItsInspectionBegins(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(ctr("a", "running")))
	ready, _ := b.relist()
	assert.Equal(t, []string{"u[ContainerStarted a ContainerDied a ContainerRemoved a]"}, ready)
	_, wanted := inspect[0].takeOff()
	assert.False(t, wanted)
	b.relist()
	assert.Empty(t, b.rs.pods)
}

func TestRecordsOfPodListedTwice(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(ctr("a", "running")), podOf(ctr("a", "exited")))
	require.Len(t, inspect, 1)
	b.fly(inspect[0])
	assert.Equal(t, []string{"u[ContainerStarted a]"}, b.lines(inspect[0].landed(b.draw())))
}

func TestRelistedWithoutChangeAllocatesNothing(t *testing.T) {
	b := newBook(t)
	var pods []*runtime.Pod
	for i := range 100 {
		pod := podOf(sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
		pod.UID = types.UID(fmt.Sprint(i))
		pods = append(pods, pod)
	}
	_, inspect := b.relist(pods...)
	for _, r := range inspect {
		b.fly(r)
		r.landed(b.draw())
	}
	never := func(types.UID, runtime.Mark) bool { panic("no pod is gone") }
	assert.Zero(t, testing.AllocsPerRun(10, func() { b.rs.relisted(pods, nil, window{}, never) }))
}

func TestFlights(t *testing.T) {
	fs := flights{limit: 2}
	now := time.Now()
	wanted := func(name string) *record {
		return &record{ref: runtime.PodRef{Name: name}, busy: true, pending: []Event{{Type: ContainerDied}}}
	}
	next := func() (string, *flight, time.Duration) {
		f, wake := fs.next(now)
		if f == nil {
			return "", nil, wake
		}
		return f.ref.Name, f, wake
	}
	fs.wait([]*record{wanted("a"), {busy: true}, wanted("b"), wanted("c"), wanted("d"), wanted("e")})

	name, a, _ := next()
	require.Equal(t, "a", name)
	now = now.Add(300 * time.Millisecond)
	name, _, _ = next()
	require.Equal(t, "b", name, "a record without events is passed over")
	name, _, wake := next()
	require.Empty(t, name, "two at a time")
	assert.Equal(t, 700*time.Millisecond, wake, "until the first loses its place")

	fs.land(a)
	name, c, _ := next()
	require.Equal(t, "c", name)
	_, _, wake = next()
	assert.Equal(t, time.Second, wake, "b and c have just begun")

	now = now.Add(time.Second)
	fs.expire(now)
	name, _, _ = next()
	require.Equal(t, "d", name, "b and c have lost their places")
	name, e, _ := next()
	require.Equal(t, "e", name)
	fs.land(c)
	assert.Equal(t, 2, fs.busy, "c did not count any more")
	fs.land(e)
	assert.Equal(t, 1, fs.busy)
	_, _, wake = next()
	assert.Zero(t, wake, "nobody waits")
}

func TestHealthTellsTheCause(t *testing.T) {
	var h health
	assert.ErrorIs(t, h.check(time.Minute), errNotRunning)
	h.begin()
	assert.ErrorIs(t, h.check(time.Minute), errNoReply)
	cause := errors.New("cause")
	assert.True(t, h.failed(cause))
	assert.False(t, h.failed(cause))
	assert.ErrorIs(t, h.check(time.Minute), cause)
	assert.True(t, h.succeeded())
	assert.False(t, h.succeeded())
	assert.NoError(t, h.check(time.Minute))
	h.end()
	assert.ErrorIs(t, h.check(time.Minute), errNotRunning)
}

// statusOf is a status that shows what a list would.
func statusOf(parts ...any) *runtime.PodStatus {
	pod := podOf(parts...)
	status := &runtime.PodStatus{PodRef: pod.PodRef}
	for _, s := range pod.Sandboxes {
		status.Sandboxes = append(status.Sandboxes, runtime.SandboxStatus{Sandbox: s})
	}
	for _, c := range pod.Containers {
		status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
	}
	return status
}

func TestRecordsCheckWhatTheCacheKnows(t *testing.T) {
	listed := podOf(sbx("s", "ready"), ctr("a", "running"))
	for _, tc := range []struct {
		name  string
		known *runtime.PodStatus
		want  string
	}{
		{"as listed", statusOf(sbx("s", "ready"), ctr("a", "running")), ""},
		{"a container that came and went", statusOf(sbx("s", "ready"), ctr("b", "running"), ctr("a", "running")),
			"u[ContainerDied b ContainerRemoved b]"},
		{"another state for a while", statusOf(sbx("s", "not-ready"), ctr("a", "unknown")), "u[SandboxStarted s ContainerStarted a]"},
		{"nothing", statusOf(), "u[SandboxStarted s ContainerStarted a]"},
		{"as many of others", statusOf(sbx("t", "not-ready"), ctr("b", "exited")),
			"u[SandboxStarted s SandboxRemoved t ContainerStarted a ContainerRemoved b]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBook(t)
			_, inspect := b.relist(listed)
			b.fly(inspect[0])
			inspect[0].landed(b.draw())

			b.statuses = []*runtime.PodStatus{tc.known}
			ready, inspect := b.relist(listed)
			assert.Empty(t, ready)
			if tc.want == "" {
				assert.Empty(t, inspect)
				return
			}
			require.Len(t, inspect, 1)
			b.fly(inspect[0])
			assert.Equal(t, []string{tc.want}, b.lines(inspect[0].landed(b.draw())))
		})
	}
}

func TestRecordsOfPodThatNoRelistSaw(t *testing.T) {
	b := newBook(t)
	b.known["u"] = b.draw()
	b.statuses = []*runtime.PodStatus{statusOf(ctr("a", "running"))}
	ready, inspect := b.relist()
	assert.Equal(t, []string{"u[ContainerDied a ContainerRemoved a]"}, ready)
	assert.Empty(t, inspect)
	assert.Empty(t, b.known)
	assert.Empty(t, b.rs.pods)
}

func TestRecordsGiveUpOnARuntimeThatContradictsItself(t *testing.T) {
	b := newBook(t)
	listed, told := podOf(ctr("a", "running")), []*runtime.PodStatus{statusOf(ctr("a", "unknown"))}
	inspections := 0
	relist := func(pod *runtime.Pod) {
		_, inspect := b.relist(pod)
		for _, r := range inspect {
			inspections++
			b.fly(r)
			r.landed(b.draw())
		}
		b.statuses = told
	}
	for range 20 {
		relist(listed)
	}
	assert.Equal(t, 1+maxDisputes, inspections)
	relist(podOf(ctr("a", "exited")))
	assert.Equal(t, 1+maxDisputes+1, inspections, "changes are still found")
}

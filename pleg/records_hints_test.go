package pleg

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestRecordsOfHintedPods(t *testing.T) {
	b := newBook(t)
	ref := runtime.PodRef{UID: "u", Name: "p"}
	hint := func() []*record { return b.hint(runtime.Hint{Pod: ref}) }
	// A pod that is gone costs a read, whatever number of hints there are.
	inspect := hint()
	require.Len(t, inspect, 1)
	require.Empty(t, hint())
	r := inspect[0]
	assert.Equal(t, b.mark, b.fly(r))
	useful, again := b.inspected(r, b.read())
	assert.False(t, useful)
	assert.False(t, again)
	b.nothing()
	assert.Empty(t, b.rs.pods)

	// Hints while it is read cost one more.
	r = hint()[0]
	b.fly(r)
	status := b.read(sbx("s", "ready"), ctr("a", "running"))
	require.Empty(t, hint())
	require.Empty(t, hint())
	useful, again = b.inspected(r, status)
	assert.Equal(t, []string{"u[SandboxStarted s ContainerStarted a]"}, b.ready())
	assert.True(t, useful)
	assert.False(t, again)
	require.Equal(t, []*record{r}, b.requested())
	b.fly(r)
	useful, again = b.inspected(r, b.read(sbx("s", "ready"), ctr("a", "running")))
	assert.False(t, useful, "they were about nothing new")
	assert.False(t, again)
	b.nothing("they were about nothing new")

	// A relist finds nothing new either, and the stream has missed nothing.
	list := b.begin()
	assert.Empty(t, list(podOf(sbx("s", "ready"), ctr("a", "running"))))
	b.nothing()

	// What a hint is about to find is not missed, all else is.
	require.Len(t, hint(), 1)
	list = b.begin()
	assert.Empty(t, list(podOf(sbx("s", "ready"), ctr("a", "exited"))))
	b.fly(r)
	b.land(r)
	list = b.begin()
	assert.Equal(t, []runtime.PodRef{podOf().PodRef}, list(podOf(sbx("s", "ready"), ctr("b", "running"))))
}

// TestRecordsOfHintsThatSayNothingNew: what is known need not be read.
func TestRecordsOfHintsThatSayNothingNew(t *testing.T) {
	view := podOf(sbx("s", "ready"), sbx("t", "not-ready"), ctr("c", "created"), ctr("r", "running"), ctr("e", "exited"), ctr("u", "unknown"))
	inspects := func(id string, event runtime.HintEvent, known ...*runtime.PodStatus) bool {
		b := newBook(t)
		_, inspect := b.relist(view)
		b.fly(inspect[0])
		b.land(inspect[0])
		for _, status := range known {
			status.Mark = b.draw()
		}
		return len(b.hint(runtime.Hint{Pod: view.PodRef, ID: id, Event: event}, known...)) > 0
	}
	const started, stopped, deleted = runtime.HintStarted, runtime.HintStopped, runtime.HintDeleted
	for event, ids := range map[runtime.HintEvent]map[string]bool{
		started: {"s": false, "t": true, "c": true, "r": false, "e": false, "u": true, "x": true, "": true},
		stopped: {"s": true, "t": false, "c": true, "r": true, "e": false, "u": true, "x": true, "": true},
		deleted: {"s": true, "t": true, "c": true, "r": true, "e": true, "u": true, "x": true, "": true},
		"":      {"s": true, "t": true, "c": true, "r": true, "e": true, "u": true, "x": true, "": true},
		"other": {"s": true, "e": true, "x": true},
	} {
		for id, want := range ids {
			assert.Equal(t, want, inspects(id, event), "%q %q", event, id)
		}
	}
	assert.False(t, inspects("n", started, statusOf(sbx("s", "ready"), ctr("n", "running"))), "a worker has seen it")
}

// TestRecordsOfPodHintedAtDuringTheListCall: the list does not show the pod, but the
// hint may be newer.
func TestRecordsOfPodHintedAtDuringTheListCall(t *testing.T) {
	for _, tc := range []struct {
		name string
		late bool // the hint comes after the list call has begun
	}{{"before it", false}, {"during it", true}} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBook(t)
			_, inspect := b.relist(podOf(ctr("a", "exited")))
			b.fly(inspect[0])
			b.land(inspect[0])
			var hinted []*record
			if !tc.late {
				hinted = b.hint(runtime.Hint{Pod: podOf().PodRef})
			}
			list := b.begin()
			if tc.late {
				hinted = b.hint(runtime.Hint{Pod: podOf().PodRef})
			}
			r := hinted[0]
			list()
			ready := b.ready()
			after, wanted := r.beginInspection()
			require.Equal(t, tc.late, wanted)
			if !tc.late {
				assert.Equal(t, []string{"u[ContainerRemoved a]"}, ready)
				assert.Empty(t, b.rs.pods)
				return
			}
			assert.Equal(t, b.mark, after, "after the list call as well")
			b.inspected(r, b.read(ctr("b", "running")))
			assert.Equal(t, []string{"u[ContainerRemoved a ContainerStarted b]"}, b.ready())
		})
	}
}

// TestRecordsLookAgainAtWhatIsDead: the last hint about a pod may come before its
// sandbox is gone.
func TestRecordsLookAgainAtWhatIsDead(t *testing.T) {
	b := newBook(t)
	_, inspect := b.relist(podOf(sbx("s", "ready"), ctr("a", "running")))
	r := inspect[0]
	b.fly(r)
	b.land(r)
	look := func(parts ...any) (again bool) {
		require.Len(t, b.hint(runtime.Hint{Pod: r.ref}), 1)
		b.fly(r)
		_, again = b.inspected(r, b.read(parts...))
		return again
	}
	assert.False(t, look(sbx("s", "ready"), ctr("a", "exited")), "it may go on")
	assert.True(t, look(sbx("s", "not-ready")))
	b.ready()

	b.rs.retry(b.draw())
	require.Equal(t, []*record{r}, b.requested())
	assert.Equal(t, b.mark, b.fly(r))
	b.inspected(r, b.read())
	assert.Equal(t, []string{"u[SandboxRemoved s]"}, b.ready())
	b.rs.retry(b.draw())
	b.nothing("once")
}

func TestRecordsFindTheOwnersOfIDs(t *testing.T) {
	b := newBook(t)
	b.relist(podOf(sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited")))
	ids := map[string]struct{}{"a": {}, "s": {}, "x": {}}
	assert.Equal(t, []runtime.PodRef{podOf().PodRef}, b.rs.owners(ids))
	assert.Equal(t, map[string]struct{}{"x": {}}, ids)
}

// TestRecordsOfHintWithAStatusOlderThanTheList: the state of the hint is known, but a
// status was read while the list call was under way, so the cache may be wrong.
func TestRecordsOfHintWithAStatusOlderThanTheList(t *testing.T) {
	b := newBook(t)
	list := b.begin()
	read := b.read(sbx("s", "ready"), ctr("a", "created"))
	list(podOf(sbx("s", "ready"), ctr("a", "running")))
	r := b.requested()[0]
	b.fly(r)
	b.land(r)
	r.compared = 0 // as if the inspection had not come after it
	inspect := b.hint(runtime.Hint{Pod: r.ref, ID: "a", Event: runtime.HintStarted}, read)
	assert.Empty(t, b.ready())
	assert.Equal(t, []*record{r}, inspect)
}

package pleg

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestRecordsOfHintsThatSayNothingNew: what is known need not be read.
func TestRecordsOfHintsThatSayNothingNew(t *testing.T) {
	view := podOf(sbx("s", "ready"), sbx("t", "not-ready"), ctr("c", "created"), ctr("r", "running"),
		ctr("e", "exited"), ctr("u", "unknown"))
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
	assert.Equal(t, []*podState{r}, inspect)
}

package runtime

import (
	"container/list"
	"hash/maphash"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What is too old to be repeated is forgotten, and the latest events are not.
func TestMergerForgetsOldEvents(t *testing.T) {
	m := &merger{order: list.New(), byKey: map[eventKey]*list.Element{}, seed: maphash.MakeSeed()}
	now := time.Now()
	for i := range 1000 {
		m.merge(Event{Message: strconv.Itoa(i)}, now.Add(time.Duration(i)*time.Millisecond))
	}
	assert.Len(t, m.byKey, 1000)
	m.merge(Event{Message: "0"}, now.Add(time.Minute))
	m.merge(Event{Message: "other"}, now.Add(mergeWindow+30*time.Second))
	assert.Len(t, m.byKey, 2, "the one repeated, and the last")
	assert.Equal(t, 2, m.order.Len())
	got, _ := m.merge(Event{Message: "0"}, now.Add(mergeWindow+40*time.Second))
	assert.Zero(t, got, "a third repeat is not passed on")
	got, _ = m.merge(Event{Message: "0"}, now.Add(mergeWindow+50*time.Second))
	assert.Equal(t, 4, got.Count)
}

// All fields of an event are part of its key, but for its count and times.
func TestKeysOfEvents(t *testing.T) {
	m := &merger{seed: maphash.MakeSeed()}
	e := Event{Pod: PodRef{UID: "u", Name: "web", Namespace: "default"}, FieldPath: "spec", Type: "Normal",
		Reason: "Started", Message: "ok"}
	repeat := e
	repeat.Count, repeat.First, repeat.Last = 3, time.Now(), time.Now()
	assert.Equal(t, m.keyOf(e), m.keyOf(repeat))
	for _, change := range []func(*Event){
		func(e *Event) { e.Pod.UID = "v" },
		func(e *Event) { e.Pod.Name = "db" }, func(e *Event) { e.Pod.Namespace = "other" },
		func(e *Event) { e.FieldPath = "" },
		func(e *Event) { e.Type = "Warning" },
		func(e *Event) { e.Reason = "Killing" }, func(e *Event) { e.Message = "no" },
	} {
		other := e
		change(&other)
		assert.NotEqual(t, m.keyOf(e), m.keyOf(other), "%+v", other)
	}
}

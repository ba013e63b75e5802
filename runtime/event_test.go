package runtime_test

import (
	"fmt"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMergeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []runtime.Event
		emit := runtime.MergeEvents(func(e runtime.Event) { got = append(got, e) })
		pull := runtime.Event{Pod: runtime.PodRef{UID: "u", Name: "web"}, Type: "Warning", Reason: "Failed",
			Message: "no such image"}
		other := pull
		other.Message = "timed out"

		start := time.Now()
		for range 9 {
			emit(pull)
			time.Sleep(time.Minute)
		}
		emit(other)
		var counts []int
		for _, e := range got {
			counts = append(counts, e.Count)
		}
		assert.Equal(t, []int{1, 2, 4, 8, 1}, counts)
		assert.Equal(t, start, got[3].First)
		assert.Equal(t, start.Add(7*time.Minute), got[3].Last)

		got = nil
		time.Sleep(9 * time.Minute) // 10 minutes after the last one that passed, 9 after the last
		emit(pull)
		require.Len(t, got, 1, "one in 10 minutes")
		assert.Equal(t, 10, got[0].Count)

		time.Sleep(11 * time.Minute)
		emit(pull)
		require.Len(t, got, 2)
		assert.Equal(t, 1, got[1].Count, "a new series")
	})
}

func TestMergeEventsIsBounded(t *testing.T) {
	n := 0
	emit := runtime.MergeEvents(func(runtime.Event) { n++ })
	for i := range 10_000 {
		emit(runtime.Event{Message: strconv.Itoa(i)})
	}
	emit(runtime.Event{Message: "0"})
	assert.Equal(t, 10_001, n, "the first one was forgotten")
	assert.Nil(t, runtime.MergeEvents(nil))
	runtime.EventFunc(nil).Emit(runtime.Event{})
}

type lister interface{ List() string }
type plain struct{ name string }

func (p plain) List() string { return p.name }

type wrapper struct{ fmt.Stringer } // embeds an interface, so hides List

func (p plain) String() string   { return p.name }
func (w wrapper) Unwrap() any    { return w.Stringer }
func (w wrapper) String() string { return "wrapped " + w.Stringer.String() }

func TestOptional(t *testing.T) {
	for name, part := range map[string]any{"direct": plain{"a"}, "wrapped": wrapper{plain{"a"}},
		"twice": wrapper{wrapper{plain{"a"}}}} {
		l, ok := runtime.Optional[lister](part)
		require.True(t, ok, name)
		assert.Equal(t, "a", l.List())
	}
	_, ok := runtime.Optional[lister](struct{}{})
	assert.False(t, ok)
	_, ok = runtime.Optional[lister](nil)
	assert.False(t, ok)
	_, ok = runtime.Optional[lister](wrapper{})
	assert.False(t, ok, "a wrapper of nothing")
}

func TestRecover(t *testing.T) {
	cause := fmt.Errorf("cause")
	err := runtime.Recover(func() error { panic(cause) })
	var crash *runtime.PanicError
	require.ErrorAs(t, err, &crash)
	assert.ErrorIs(t, err, cause)
	assert.Equal(t, "panic: cause", err.Error())
	assert.Contains(t, string(crash.Stack), "TestRecover")
	assert.NoError(t, runtime.Recover(func() error { return nil }))
	assert.Equal(t, cause, runtime.Recover(func() error { return cause }))
}

func TestFieldPath(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}},
		Containers:     []v1.Container{{Name: "main"}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	assert.Equal(t, "spec.initContainers{init}", runtime.FieldPath(pod, "init"))
	assert.Equal(t, "spec.containers{main}", runtime.FieldPath(pod, "main"))
	assert.Equal(t, "spec.ephemeralContainers{debug}", runtime.FieldPath(pod, "debug"))
	assert.Equal(t, "spec.containers{other}", runtime.FieldPath(pod, "other"))
	assert.Equal(t, "spec.containers{main}", runtime.FieldPath(nil, "main"))
}

// The messages of different events, such as outputs of a probe, are not kept.
func TestMergeEventsKeepsNoMessages(t *testing.T) {
	heap := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	emit := runtime.MergeEvents(func(runtime.Event) {})
	before := heap()
	for i := range 4096 {
		emit(runtime.Event{Reason: "Unhealthy", Message: strconv.Itoa(i) + strings.Repeat("x", 10<<10)})
	}
	assert.Less(t, heap(), before+(8<<20))
	goruntime.KeepAlive(emit)
}

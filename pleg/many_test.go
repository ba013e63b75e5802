package pleg

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// many is the number of items that runtime/cri accepts in a list.
const many = 100_000

// soon is far longer than what takes time in proportion to the number of items, and far
// shorter than what takes time in proportion to its square.
const soon = 10 * time.Second

// A runtime can list any number of containers, each time in another order: they are sorted by
// times that it reports. One goroutine compares the lists of all pods.
func TestManyContainersInAnotherOrder(t *testing.T) {
	before, after := podOf(), podOf()
	for i := range many {
		before.Containers = append(before.Containers, ctr(fmt.Sprint("c", i), runtime.ContainerExited))
		before.Sandboxes = append(before.Sandboxes, sbx(fmt.Sprint("s", i), runtime.SandboxNotReady))
	}
	after.Containers, after.Sandboxes = slices.Clone(before.Containers), slices.Clone(before.Sandboxes)
	slices.Reverse(after.Containers)
	slices.Reverse(after.Sandboxes)
	began := time.Now()
	assert.Empty(t, diff(before, after))
	after.Containers[many/2].State = runtime.ContainerRunning
	assert.Len(t, diff(before, after), 1)
	joint := join(before, after, nil)
	assert.Len(t, joint.Containers, many)
	status := &runtime.PodStatus{}
	for _, c := range before.Containers {
		status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
	}
	after.Sandboxes, after.Containers[many/2].State = nil, runtime.ContainerExited
	assert.True(t, agree(status, after))
	assert.Less(t, time.Since(began), soon)
}

// manyEvents are events of containers with numbers from a first one on.
func manyEvents(first, n int, typ Type) []Event {
	var events []Event
	for i := range n {
		events = append(events, Event{Type: typ, ContainerID: runtime.ContainerID{Type: "test", ID: fmt.Sprint("c", first+i)}})
	}
	return events
}

func TestManyEvents(t *testing.T) {
	began := time.Now()
	a, b := manyEvents(0, many, ContainerDied), manyEvents(many, many, ContainerDied)
	assert.Len(t, merge(slices.Clone(a), a), many)
	assert.Equal(t, b, merge(slices.Clone(a), b), "the oldest are dropped")
	other := podOf()
	for i := range many {
		other.Containers = append(other.Containers, ctr(fmt.Sprint("c", i), runtime.ContainerExited))
	}
	assert.Empty(t, join(nil, other, manyEvents(0, many, ContainerRemoved)).Containers)
	assert.Less(t, time.Since(began), soon)
}

func TestManyRecords(t *testing.T) {
	began := time.Now()
	status := &runtime.PodStatus{}
	for i := range many {
		status.Containers = append(status.Containers, runtime.ContainerStatus{
			Container: ctr(fmt.Sprint("c", i), runtime.ContainerExited), ExitCode: int32(i),
		})
	}
	slices.Reverse(status.Containers)
	n := int32(0)
	recordEvents(func(r runtime.Record) {
		if r.ExitCode != n {
			t.Fatalf("exit code %d, want %d", r.ExitCode, n)
		}
		n++
	}, runtime.PodRef{}, manyEvents(0, many, ContainerDied), status, runtime.SourceRelist)
	assert.EqualValues(t, many, n)
	assert.Less(t, time.Since(began), soon)
}

// A runtime can list other containers each time, and never report the status of the pod.
func TestEventsOfAPodThatCannotBeInspected(t *testing.T) {
	r := &record{}
	for i := range 100 {
		events := append(manyEvents(100*i, 100, ContainerDied), manyEvents(100*i, 100, ContainerRemoved)...)
		r.removed = appendRemovals(r.removed, events)
		r.await(events, runtime.Mark(i))
		if i%2 == 0 {
			r.beginInspection()
			r.inspectionFailed()
		}
	}
	assert.LessOrEqual(t, len(r.waiting), maxEvents)
	assert.LessOrEqual(t, len(r.removed), maxEvents)
	assert.Equal(t, "c9999", r.waiting[len(r.waiting)-1].ContainerID.ID, "the newest are kept")
}

// A runtime can send hints about ever new pods, and answer no inspection.
func TestHintsOfEverNewPods(t *testing.T) {
	g := newGenerator(nil, nil, runtime.NewCache(nil, runtime.CacheOptions{}), EventedOptions{})
	for i := range 3 * maxHinted {
		g.stream.hint(runtime.Hint{Pod: runtime.PodRef{UID: types.UID(fmt.Sprint(i))}, ID: "1"}, g.cache.Now())
		g.takeMail()
	}
	assert.LessOrEqual(t, len(g.records.pods), maxHinted)
	assert.LessOrEqual(t, len(g.records.inspections.queue), maxHinted)
	assert.True(t, g.schedule.unmatched, "a relist finds the changes of the others")
}

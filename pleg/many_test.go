package pleg

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// many is the number of items that runtime/cri accepts in a list.
const many = 100_000

// soon is a processor time, far longer than what takes time in proportion to the number of items, and far
// shorter than what takes time in proportion to its square.
const soon = 20 * time.Second

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
	took := testenv.CPUTime(t, func() {
		assert.Empty(t, diff(before, after))
		after.Containers[many/2].State = runtime.ContainerRunning
		assert.Len(t, diff(before, after), 1)
		joint := join(before, after, nil)
		assert.Len(t, joint.Containers, many)
	})
	assert.Less(t, took, soon)
}

// manyEvents are events of containers with numbers from a first one on.
func manyEvents(first, n int, typ Type) []Event {
	var events []Event
	for i := range n {
		events = append(events,
			Event{Type: typ, ContainerID: runtime.ContainerID{Type: "test", ID: fmt.Sprint("c", first+i)}})
	}
	return events
}

func TestManyEvents(t *testing.T) {
	a, b := manyEvents(0, many, ContainerDied), manyEvents(many, many, ContainerDied)
	other := podOf()
	for i := range many {
		other.Containers = append(other.Containers, ctr(fmt.Sprint("c", i), runtime.ContainerExited))
	}
	took := testenv.CPUTime(t, func() {
		assert.Len(t, merge(slices.Clone(a), a), many)
		assert.Len(t, merge(slices.Clone(a), b), 2*many)
		assert.Empty(t, join(nil, other, removals{}.with(manyEvents(0, many, ContainerRemoved))).Containers)
	})
	assert.Less(t, took, soon)
}

func TestManyRecords(t *testing.T) {
	status := &runtime.PodStatus{}
	for i := range many {
		status.Containers = append(status.Containers, runtime.ContainerStatus{
			Container: ctr(fmt.Sprint("c", i), runtime.ContainerExited), ExitCode: int32(i),
		})
	}
	slices.Reverse(status.Containers)
	n := int32(0)
	took := testenv.CPUTime(t, func() {
		recordEvents(func(r runtime.Record) {
			if r.ExitCode != n {
				t.Fatalf("exit code %d, want %d", r.ExitCode, n)
			}
			n++
		}, runtime.PodRef{}, manyEvents(0, many, ContainerDied), status, runtime.SourceRelist)
	})
	assert.EqualValues(t, many, n)
	assert.Less(t, took, soon)
}

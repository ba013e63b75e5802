package pleg

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestInspectionsHaveSlots(t *testing.T) {
	in := inspections{limit: 2}
	now := time.Now()
	wanted := func(name string) *podState {
		return &podState{ref: runtime.PodRef{Name: name}, state: queued, waiting: []Event{{Type: ContainerDied}}}
	}
	next := func() (string, *inspection, time.Duration) {
		if i := in.next(now); i != nil {
			return i.ref.Name, i, 0
		}
		if at := in.slotAt(); !at.IsZero() {
			return "", nil, at.Sub(now)
		}
		return "", nil, 0
	}
	for _, r := range []*podState{wanted("a"), {}, wanted("b"), wanted("c"), wanted("d"), wanted("e")} {
		in.request(r)
	}

	name, a, _ := next()
	require.Equal(t, "a", name)
	now = now.Add(300 * time.Millisecond)
	name, _, _ = next()
	require.Equal(t, "b", name, "a pod that wants none is passed over")
	name, _, wake := next()
	require.Empty(t, name, "two at a time")
	assert.Equal(t, 700*time.Millisecond, wake, "until the first loses its slot")

	in.ended(a, now)
	name, c, _ := next()
	require.Equal(t, "c", name)
	_, _, wake = next()
	assert.Equal(t, time.Second, wake, "b and c have just begun")

	now = now.Add(time.Second)
	name, _, _ = next()
	require.Equal(t, "d", name, "b and c have lost their slots")
	name, e, _ := next()
	require.Equal(t, "e", name)
	in.ended(c, now)
	assert.Equal(t, 2, in.used, "c had no slot any more")
	in.ended(e, now)
	assert.Equal(t, 1, in.used)
	_, _, wake = next()
	assert.Zero(t, wake, "nothing waits")
}

package podsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A pod that was taken twice, because the first measurement began late, is measured once.
func TestAPodIsMeasuredOnceAtATime(t *testing.T) {
	m := measurements{wake: make(chan struct{}, 1)}
	m.note(testpod.New("web", testpod.UID("u")), &runtime.PodStatus{}, "")
	later := time.Now().Add(time.Hour)
	first, second := m.take(later), m.take(later)
	require.Len(t, first, 1)
	require.Equal(t, first, second)
	_, _, _, ok := m.begin(t.Context(), first[0])
	assert.True(t, ok)
	_, _, _, ok = m.begin(t.Context(), second[0])
	assert.False(t, ok)
	m.end(first[0], later, time.Second)
	assert.Len(t, m.take(later.Add(time.Hour)), 1)
}

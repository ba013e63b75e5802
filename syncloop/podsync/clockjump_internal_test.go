package podsync

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// jumped returns the time as time.Now does after a jump of the wall clock: the monotonic reading is that
// of at. It is written into the first field of a time, which has the seconds of the wall clock.
func jumped(t *testing.T, at time.Time, jump time.Duration) time.Time {
	after := at
	*(*uint64)(unsafe.Pointer(&after)) += uint64(jump/time.Second) << 30
	require.Equal(t, jump, after.Round(0).Sub(at.Round(0)))
	require.Zero(t, after.Sub(at))
	return after
}

// A jump of the wall clock neither ends a pod with a deadline nor has it run for longer.
func TestDeadlineDoesNotJump(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: new(int64(60))}}
	now := time.Now()
	status := func(age time.Duration) *v1.PodStatus {
		return &v1.PodStatus{StartTime: new(metav1.NewTime(now.Add(-age).Round(0)))} // without a monotonic reading
	}
	for _, jump := range []time.Duration{-10 * time.Hour, 10 * time.Hour, 50 * 365 * 24 * time.Hour} {
		st := &podState{}
		past, left := st.pastActiveDeadline(pod, status(10*time.Second), now)
		assert.False(t, past)
		assert.Equal(t, 50*time.Second, left)
		past, left = st.pastActiveDeadline(pod, status(10*time.Second), jumped(t, now.Add(20*time.Second), jump))
		assert.False(t, past, jump)
		assert.Equal(t, 30*time.Second, left, jump)
		past, left = st.pastActiveDeadline(pod, status(10*time.Second), jumped(t, now.Add(50*time.Second), jump))
		assert.True(t, past, jump)
		assert.Zero(t, left)
	}
	// The agent is restarted after the clock was set back.
	past, left := (&podState{}).pastActiveDeadline(pod, status(-10*time.Hour), now)
	assert.False(t, past)
	assert.Equal(t, time.Minute, left)
}

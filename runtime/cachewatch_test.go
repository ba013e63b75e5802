package runtime_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

type inspectorFunc func() *runtime.PodStatus

func (f inspectorFunc) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	return f(), nil
}

func TestWatchStatus(t *testing.T) {
	var now runtime.PodStatus
	cache := runtime.NewCache(inspectorFunc(func() *runtime.PodStatus { s := now; return &s }), runtime.CacheOptions{})
	changed, stop := cache.WatchStatus(testRef.UID)
	other, stopOther := cache.WatchStatus("other")
	second, stopSecond := cache.WatchStatus(testRef.UID)
	read := func(state runtime.ContainerState) {
		t.Helper()
		now = runtime.PodStatus{PodRef: testRef}
		if state != "" {
			now.Containers = []runtime.ContainerStatus{
				{Container: runtime.Container{ID: runtime.ContainerID{Type: "t", ID: "1"}, State: state}}}
		}
		_, err := cache.Newer(t.Context(), testRef, cache.Now())
		require.NoError(t, err)
	}
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	read("")
	assert.False(t, woken(changed), "it is still not known")
	read(runtime.ContainerRunning)
	read(runtime.ContainerExited)
	assert.True(t, woken(changed), "two changes")
	assert.False(t, woken(changed), "are one value")
	read(runtime.ContainerExited)
	assert.False(t, woken(changed), "nothing has changed")
	assert.True(t, cache.ForgetUntil(testRef.UID, cache.Now()))
	assert.True(t, woken(changed), "it is not known any more")
	read(runtime.ContainerRunning)
	assert.True(t, woken(changed))
	read("")
	assert.True(t, woken(changed), "the runtime does not have it any more")

	stop()
	woken(second)
	read(runtime.ContainerRunning)
	assert.False(t, woken(changed))
	assert.True(t, woken(second))
	assert.False(t, woken(other))
	stopSecond()
	stopOther()
	stopOther()
}

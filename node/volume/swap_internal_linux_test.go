package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// If volumes in memory may be swapped to the disk, the node has an event about it, once.
func TestVolumesThatMaySwap(t *testing.T) {
	pod := testpod.New("web", testpod.Containers("main"))
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	for _, may := range []bool{true, false} {
		var events []runtime.Event
		m, err := New(Options{Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { events = append(events, e) }}})
		require.NoError(t, err)
		m.maySwap = func() bool { return may }
		for range 2 {
			_, err = m.SetUp(t.Context(), pod, t.TempDir())
			require.NoError(t, err)
		}
		if !may {
			assert.Empty(t, events)
			continue
		}
		require.Len(t, events, 1)
		assert.Equal(t, "PossibleMemoryBackedVolumesOnDisk", events[0].Reason)
		assert.Zero(t, events[0].Pod, "it is about the node")
	}

	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	assert.False(t, swapIsOn(heading))
	assert.False(t, swapIsOn(""))
	assert.True(t, swapIsOn(heading+"/dev/zram0 partition 1 0 100\n"))
}

package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// limited is a pod of an API server with a volume in memory.
func limited(generation int64, size string) *v1.Pod {
	return testpod.New("a", func(p *v1.Pod) {
		p.Generation = generation
		p.Annotations = map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse(size))}}}}
	})
}

// The size of a volume in memory follows its limit while the pod runs, but not below what it holds.
func TestMemoryResizer(t *testing.T) {
	needsMount(t)
	dir := t.TempDir()
	at := volume.PlaceOf(dir, volume.EmptyDir{}.Name(), "v").Dir
	prepare := func(r volume.MemoryResizer, pod *v1.Pod) string {
		res, err := r.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod, Dir: dir})
		require.NoError(t, err)
		return res.ResizeError
	}
	assert.Empty(t, prepare(volume.MemoryResizer{}, limited(2, "4Mi")), "it is not mounted")
	pod := limited(1, "4Mi")
	_, err := volume.EmptyDir{}.SetUp(t.Context(), volume.SetUpRequest{Pod: pod, Volume: &pod.Spec.Volumes[0],
		Place: volume.PlaceOf(dir, volume.EmptyDir{}.Name(), "v")})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, volume.EmptyDir{}.TearDown(t.Context(), volume.TearDownRequest{Place: volume.Place{Dir: at}}))
	})
	_, before := mountOf(t, at)
	require.NoError(t, os.WriteFile(filepath.Join(at, "f"), make([]byte, 3<<20), 0o600))

	assert.Empty(t, prepare(volume.MemoryResizer{Refuse: "off"}, limited(2, "8Mi")))
	_, after := mountOf(t, at)
	assert.Equal(t, before, after)
	assert.Empty(t, prepare(volume.MemoryResizer{}, limited(2, "8Mi")))
	_, after = mountOf(t, at)
	assert.Subset(t, after, []string{"size=8192k", "nosuid", "nodev"})
	assert.Len(t, after, len(before), "the other options stay")
	assert.Equal(t, "failed to resize volume v: it holds 3145728 bytes, more than 2097152",
		prepare(volume.MemoryResizer{}, limited(3, "2Mi")))
	require.NoError(t, os.Remove(filepath.Join(at, "f")))
	assert.Empty(t, prepare(volume.MemoryResizer{}, limited(3, "2Mi")))
	_, after = mountOf(t, at)
	assert.Contains(t, after, "size=2048k")
}

func TestRefusedMemoryResize(t *testing.T) {
	for _, why := range []string{"", "disabled"} {
		r := volume.MemoryResizer{Refuse: why}
		_, err := r.Admit(lifecycle.AdmitRequest{Pod: limited(2, "8Mi"), Held: limited(2, "4Mi")})
		if why == "" {
			require.NoError(t, err)
		} else {
			var refusal *kruntime.TerminalError
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, v1.PodReasonInfeasible+why, refusal.Reason+refusal.Message)
		}
		_, err = r.Admit(lifecycle.AdmitRequest{Pod: limited(2, "8Mi"), Held: limited(2, "8Mi")})
		require.NoError(t, err, "of something else")
		_, err = r.Admit(lifecycle.AdmitRequest{Pod: limited(2, "8Mi")})
		require.NoError(t, err, "a new pod")
	}
}

package checkpoint_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/devices/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The files in testdata were written by the packages checkpointmanager and cm/devicemanager/checkpoint of kubelet
// 1.36.3. 1.37.2 writes the same, see TestCheckpointsOfKubelets in test/e2e.
func TestFilesOfKubelet(t *testing.T) {
	for _, name := range []string{"kubelet_internal_checkpoint", "empty"} {
		content, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		entries, registered, err := checkpoint.Unmarshal(content)
		require.NoError(t, err)
		again, err := checkpoint.Marshal(entries, registered)
		require.NoError(t, err)
		assert.Equal(t, string(content), string(again), "every byte, and the checksum")
		content[len(content)-2] ^= 1
		_, _, err = checkpoint.Unmarshal(content)
		require.ErrorIs(t, err, checkpoint.ErrChecksum)
	}
}

// The answers of plugins are read as kubelet's, and written with the same meaning.
func TestAnswersOfKubelet(t *testing.T) {
	content, err := os.ReadFile("testdata/kubelet_internal_checkpoint")
	require.NoError(t, err)
	entries, _, err := checkpoint.Unmarshal(content)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	got, err := checkpoint.Decode(entries[0].AllocResp)
	require.NoError(t, err)
	want := runtime.ContainerEdits{
		Env: []v1.EnvVar{{Name: "GPUS", Value: "gpu-0,gpu-2"}},
		Mounts: []runtime.BindMount{{ContainerPath: "/usr/lib/gpu", HostPath: "/opt/gpu/lib", ReadOnly: true},
			{ContainerPath: "/run/gpu", HostPath: "/run/gpu"}},
		Devices:     []runtime.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "rw"}},
		Annotations: map[string]string{"gpu.example.com/ids": "0,2"},
		CDIDevices:  []string{"example.com/gpu=0"},
	}
	assert.Equal(t, want, got)
	assert.Equal(t, entries[0].AllocResp, checkpoint.Encode(want), "with one variable and one annotation, the "+
		"encoding has one order")
	got, err = checkpoint.Decode(entries[1].AllocResp)
	require.NoError(t, err)
	assert.Equal(t, runtime.ContainerEdits{}, got)
	assert.Equal(t, []byte{}, checkpoint.Encode(got))
}

func TestMaps(t *testing.T) {
	e := runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "B", Value: "2"}, {Name: "A"}},
		Annotations: map[string]string{"x": "", "y": "1"}}
	got, err := checkpoint.Decode(checkpoint.Encode(e))
	require.NoError(t, err)
	e.Env = []v1.EnvVar{{Name: "A"}, {Name: "B", Value: "2"}}
	assert.Equal(t, e, got)
}

// FuzzDecode decodes damaged answers.
func FuzzDecode(f *testing.F) {
	f.Add(checkpoint.Encode(runtime.ContainerEdits{
		Env: []v1.EnvVar{{Name: "A", Value: "1"}}, Mounts: []runtime.BindMount{{HostPath: "/a", ContainerPath: "/b",
			ReadOnly: true}}, CDIDevices: []string{"a/b=c"},
	}))
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := checkpoint.Decode(message)
		if err != nil {
			return
		}
		again, err := checkpoint.Decode(checkpoint.Encode(e))
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

// FuzzUnmarshal reads damaged files.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`))
	f.Fuzz(func(_ *testing.T, content []byte) { _, _, _ = checkpoint.Unmarshal(content) })
}

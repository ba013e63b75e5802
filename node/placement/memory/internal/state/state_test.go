package state

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

// The files are written by kubelet 1.36.3, those with 1.37 in their names by 1.37.2, see TestCheckpointsOfKubelets in
// test/e2e; pods.json and pods-1.37.json with the feature gate PodLevelResourceManagers.
func TestKubeletsFiles(t *testing.T) {
	data, err := os.ReadFile("testdata/kubelet.json")
	require.NoError(t, err)
	f, err := Parse(data)
	require.NoError(t, err)
	assert.Len(t, f.Entries, 2)
	assert.Equal(t, string(data), string(Format(f)))
	_, err = Parse([]byte(strings.Replace(string(data), `"free"`, `"Free"`, 1)))
	require.NoError(t, err, "the checksum is one of the values")
	_, err = Parse([]byte(strings.Replace(string(data), `"size":`, `"size":1`, 1)))
	assert.ErrorIs(t, err, checkpoint.ErrChecksum)

	data, err = os.ReadFile("testdata/kubelet-1.37.json")
	require.NoError(t, err)
	later, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, string(Format(f)), string(Format(later)))
	_, err = Parse([]byte(strings.Replace(string(data), `\"size\":`, `\"size\":1`, 1)))
	require.ErrorIs(t, err, checkpoint.ErrChecksum)
	_, err = Parse([]byte(strings.Replace(string(data), `"data":`, `"was":`, 1)))
	require.ErrorIs(t, err, checkpoint.ErrChecksum)
	later, err = Parse([]byte(strings.Replace(string(data), `"size":`, `"size":1`, 1)))
	require.NoError(t, err, "the rest is for earlier kubelets")
	assert.Equal(t, string(Format(f)), string(Format(later)))

	data, err = os.ReadFile("testdata/gate.json")
	require.NoError(t, err)
	f, err = Parse(data)
	require.NoError(t, err, "no pod has memory as a whole")
	assert.Len(t, f.Entries, 2)
	for _, name := range []string{"testdata/pods.json", "testdata/pods-1.37.json"} {
		data, err = os.ReadFile(name)
		require.NoError(t, err)
		_, err = Parse(data)
		assert.ErrorIs(t, err, errPods)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/kubelet.json", "testdata/kubelet-1.37.json", "testdata/pods.json"} {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"machineState":{"0":null},"entries":{"p":null},"checksum":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(Format(parsed))
		require.NoError(t, err)
		assert.Equal(t, parsed.Entries, again.Entries)
	})
}

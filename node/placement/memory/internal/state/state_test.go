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
	f, _, err := Parse(data)
	require.NoError(t, err)
	assert.Len(t, f.Entries, 2)
	assert.Equal(t, string(data), string(Format(f, nil)))
	_, _, err = Parse([]byte(strings.Replace(string(data), `"free"`, `"Free"`, 1)))
	require.NoError(t, err, "the checksum is one of the values")
	_, _, err = Parse([]byte(strings.Replace(string(data), `"size":`, `"size":1`, 1)))
	assert.ErrorIs(t, err, checkpoint.ErrChecksum)

	data, err = os.ReadFile("testdata/kubelet-1.37.json")
	require.NoError(t, err)
	later, _, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, string(Format(f, nil)), string(Format(later, nil)))
	_, _, err = Parse([]byte(strings.Replace(string(data), `\"size\":`, `\"size\":1`, 1)))
	require.ErrorIs(t, err, checkpoint.ErrChecksum)
	_, _, err = Parse([]byte(strings.Replace(string(data), `"data":`, `"was":`, 1)))
	require.ErrorIs(t, err, checkpoint.ErrChecksum)
	later, _, err = Parse([]byte(strings.Replace(string(data), `"size":`, `"size":1`, 1)))
	require.NoError(t, err, "the rest is for earlier kubelets")
	assert.Equal(t, string(Format(f, nil)), string(Format(later, nil)))

	data, err = os.ReadFile("testdata/gate.json")
	require.NoError(t, err)
	f, _, err = Parse(data)
	require.NoError(t, err, "no pod has memory as a whole")
	assert.Len(t, f.Entries, 2)
	data, err = os.ReadFile("testdata/pods.json")
	require.NoError(t, err)
	_, _, err = Parse(data)
	require.ErrorIs(t, err, errPods)

	data, err = os.ReadFile("testdata/pods-1.37.json")
	require.NoError(t, err)
	f, pods, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, PodMemoryAssignments{"uid-b": {[]Block{{[]int{0}, "memory", 5 << 30},
		{[]int{0}, "hugepages-2Mi", 1 << 30}}}}, pods)
	assert.Len(t, f.Entries, 1)
	assert.Equal(t, string(data), string(Format(f, pods)), "as kubelet 1.37.2 writes it")
	_, _, err = Parse([]byte(strings.Replace(string(data), `podEntries\":{\"uid-b`, `podEntries\":{\"uid-c`, 1)))
	assert.ErrorIs(t, err, checkpoint.ErrChecksum)
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/kubelet.json", "testdata/kubelet-1.37.json", "testdata/pods.json",
		"testdata/pods-1.37.json"} {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"machineState":{"0":null},"entries":{"p":null},"checksum":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, pods, err := Parse(data)
		if err != nil {
			return
		}
		again, podsAgain, err := Parse(Format(parsed, pods))
		require.NoError(t, err)
		assert.Equal(t, parsed.Entries, again.Entries)
		assert.Len(t, podsAgain, len(pods))
	})
}

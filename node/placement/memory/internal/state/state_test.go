package state

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files are written by kubelet 1.36.3: pods.json with the feature gate PodLevelResourceManagers.
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
	assert.ErrorIs(t, err, errChecksum)

	data, err = os.ReadFile("testdata/gate.json")
	require.NoError(t, err)
	f, err = Parse(data)
	require.NoError(t, err, "no pod has memory as a whole")
	assert.Len(t, f.Entries, 2)
	data, err = os.ReadFile("testdata/pods.json")
	require.NoError(t, err)
	_, err = Parse(data)
	assert.ErrorIs(t, err, errPods)
	// by 1.37.2, without and with one
	f, err = Parse([]byte(`{"policyName":"Static","machineState":{},"checksum":3940083781,"data":` +
		`"{\"policyName\":\"Static\",\"machineState\":{}}","dataChecksum":3196122654}`))
	require.NoError(t, err)
	assert.Empty(t, f.Entries)
	_, err = Parse([]byte(`{"policyName":"Static","machineState":{},"checksum":3940083781,"data":` +
		`"{\"podEntries\":{\"a\":{}}}"}`))
	assert.ErrorIs(t, err, errPods)
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/kubelet.json", "testdata/pods.json"} {
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

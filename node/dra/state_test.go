package dra

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

var example = []ClaimState{
	{Claim: Claim{"default", "both", "uid-1"}, Pods: []types.UID{"pod-1", "pod-2"}, Drivers: map[string][]Device{
		"gpu.example.com": {
			{Pool: "node", Name: "gpu-0", ShareID: new(types.UID("share")), Requests: []string{"big"}, CDIDevices: []string{"example.com/gpu=0", "example.com/gpu=all"}},
			{Pool: "node", Name: "gpu-1"},
		},
		"net.example.com": nil,
	}},
	{Claim: Claim{"other", "none", "uid-2"}, Pods: []types.UID{"pod-3"}, Drivers: map[string][]Device{}},
}

// The file was written by k8s.io/kubernetes v1.36.3, pkg/kubelet/cm/dra/state. v1.37.2 writes the same, see
// TestCheckpointsOfKubelets in test/e2e.
func TestStateOfKubelet(t *testing.T) {
	file, err := os.ReadFile("testdata/dra_manager_state")
	require.NoError(t, err)
	list, err := ParseState(file)
	require.NoError(t, err)
	assert.Equal(t, example, list)
	assert.Equal(t, string(file), string(FormatState(list)))
	empty, err := os.ReadFile("testdata/dra_manager_state.empty")
	require.NoError(t, err)
	list, err = ParseState(empty)
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestStateThatIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                                    "unexpected end of JSON input",
		`{"Data":"x","Checksum":1}`:           "the checksum is 1, and that of the content 2363233923",
		`{"Data":"","Checksum":0}`:            "unexpected end of JSON input",
		`{"Data":"{}","Checksum":2745614147}`: `it is a "" of "", not a "DRACheckpoint" of "checkpoint.dra.kubelet.k8s.io/v1"`,
	} {
		_, err := ParseState([]byte(text))
		assert.EqualError(t, err, want, text)
	}
	twice := FormatState([]ClaimState{example[0], example[0]})
	_, err := ParseState(twice)
	assert.EqualError(t, err, "claim default/both is there twice")
	_, err = ParseState(FormatState([]ClaimState{{}}))
	assert.EqualError(t, err, "a claim has no namespace, name or UID")
}

func FuzzParseState(f *testing.F) {
	f.Add(FormatState(example))
	f.Add([]byte(`{"Data":"{}","Checksum":2745614147}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ParseState(data)
		if err != nil {
			return
		}
		again, err := ParseState(FormatState(list))
		require.NoError(t, err)
		assert.Equal(t, list, again)
	})
}

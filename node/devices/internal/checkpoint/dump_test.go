package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

func TestDump(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "b", "\x00\"\n\xff"}))
	rapid.Check(t, func(t *rapid.T) {
		data := checkpointData{}
		ids := rapid.Custom(func(t *rapid.T) []string {
			if rapid.Bool().Draw(t, "nil") {
				return nil
			}
			return rapid.SliceOfN(text, 0, 3).Draw(t, "ids")
		})
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			e := PodDevicesEntry{PodUID: text.Draw(t, "uid"), ContainerName: text.Draw(t, "container"),
				ResourceName: text.Draw(t, "resource")}
			if rapid.Bool().Draw(t, "devices") {
				e.DeviceIDs = rapid.MapOfN(rapid.Int64(), ids, 0, 3).Draw(t, "nodes")
			}
			if rapid.Bool().Draw(t, "answer") {
				e.AllocResp = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			}
			data.PodDeviceEntries = append(data.PodDeviceEntries, e)
		}
		if rapid.Bool().Draw(t, "registered") {
			data.RegisteredDevices = rapid.MapOfN(text, ids, 0, 3).Draw(t, "resources")
		}
		require.Equal(t, dump.ForHash(data), string(appendDump(nil, data)))
	})
}

// BenchmarkChecksum has 1 MiB of answers.
func BenchmarkChecksum(b *testing.B) {
	data := checkpointData{PodDeviceEntries: []PodDevicesEntry{{AllocResp: make([]byte, 1<<20)}}}
	for b.Loop() {
		checkpoint.Hash(appendDump(nil, data))
	}
}

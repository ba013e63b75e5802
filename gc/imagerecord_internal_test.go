package gc

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The file with the times of use, with any content. No time is in the future, and what
// was read can be written and read again.
func FuzzImageRecords(f *testing.F) {
	f.Add(
		[]byte(
			`{"version":1,"images":{"a":{"firstSeen":"2026-01-02T03:04:05Z","lastUsed":"9999-01-02T03:04:05Z"},"b":null,"":{"inUse":true}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		records, err := readImageRecords(path)
		require.NotNil(t, records)
		if err != nil {
			require.Empty(t, records.byID)
		}
		var list []runtime.Image
		for id := range records.byID {
			list = append(list, runtime.Image{ID: id})
		}
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for _, image := range records.observe(list, now) {
			require.False(t, image.FirstSeen.After(now))
			require.False(t, image.LastUsed.After(now))
		}
		records.changed = true
		if err := records.write(path); err == nil {
			_, err = readImageRecords(path)
			require.NoError(t, err)
		}
	})
}

package gc

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A file system has 8 EiB, and a runtime says that images are as large.
func TestSizesDoNotOverflow(t *testing.T) {
	in := ImageInput{
		Images: []Image{
			{Image: runtime.Image{ID: "a", Size: math.MaxInt64}},
			{Image: runtime.Image{ID: "b", Size: math.MaxInt64}},
			{Image: runtime.Image{ID: "c", Size: 1}, FirstSeen: time.Unix(2000, 0)},
		},
		Fs:     runtime.FsUsage{CapacityBytes: math.MaxInt64, AvailableBytes: math.MaxInt64 / 2},
		Policy: ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80},
		Now:    time.Unix(3000, 0),
	}
	assert.Equal(t, 51, in.UsagePercent()) // rounded up, as in kubelet
	assert.Empty(t, PlanImages(in).Remove)
	in.Policy.MaxAge = 1500 * time.Second
	assert.Len(t, PlanImages(in).Remove, 2, "those that are too old, and none for space")
	in.Policy.MaxAge, in.Fs.AvailableBytes = 0, math.MaxInt64/100
	assert.Len(t, PlanImages(in).Remove, 1, "one is enough")
	for _, available := range []int64{-1, 0} {
		in.Fs.AvailableBytes = available
		assert.Equal(t, 100, in.UsagePercent())
	}
}

// An agent that is killed while it writes leaves a file, which the next one writes over.
func TestInterruptedWriteOfRecords(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "images")
	require.NoError(t, os.WriteFile(path+".new", make([]byte, 1<<20), 0o600))
	records := &imageRecords{byID: map[string]*imageRecord{"a": {}}, changed: true}
	require.NoError(t, records.write(path))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
	read, err := readImageRecords(path)
	require.NoError(t, err)
	assert.Len(t, read.byID, 1)
}

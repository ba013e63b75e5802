package safefile

import (
	"io/fs"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	assert.Equal(t, Disk{Capacity: 40960, Available: 8192, Used: 28672, Inodes: 100, InodesFree: 40},
		size(4096, 10, 3, 2, 100, 40))
	assert.Zero(t, size(0, 10, 3, 2, 0, 0))
	assert.Zero(t, size(4096, 10, 11, 0, 0, 0).Used, "more is free than there is")
	assert.Zero(t, size(math.MaxUint64, 2, 0, 0, 0, 0).Capacity, "an overflow")
	assert.EqualValues(t, 60, (&Disk{Inodes: 100, InodesFree: 40}).InodesUsed())
	assert.Zero(t, (&Disk{InodesFree: 40}).InodesUsed())
}

func TestDiskSize(t *testing.T) {
	dir := t.TempDir()
	s, err := DiskSize(dir)
	if err != nil {
		t.Skip(err) // not Linux
	}
	assert.Positive(t, s.Capacity)
	assert.LessOrEqual(t, s.Available, s.Capacity)
	_, err = DiskSize(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	above, err := DiskSizeAt(filepath.Join(dir, "none", "below"))
	require.NoError(t, err)
	assert.Equal(t, s.Capacity, above.Capacity)
}

package safefile

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
)

// Disk is the size of a file system, in bytes and in inodes.
type Disk struct {
	Capacity uint64
	// Available is what users other than root can still write, and Used what is not free.
	Available, Used    uint64
	Inodes, InodesFree uint64
}

// InodesUsed returns the number of inodes that are not free.
func (s *Disk) InodesUsed() uint64 { return s.Inodes - min(s.Inodes, s.InodesFree) }

// size returns the size from the figures of statfs(2). An amount that does not fit is 0.
func size(unit, blocks, free, available, inodes, inodesFree uint64) Disk {
	bytes := func(n uint64) uint64 {
		if unit != 0 && n > math.MaxUint64/unit {
			return 0
		}
		return n * unit
	}
	return Disk{
		Capacity: bytes(blocks), Available: bytes(available), Used: bytes(blocks - min(blocks, free)), Inodes: inodes,
		InodesFree: inodesFree,
	}
}

// DiskSizeAt is [DiskSize] of the directory or, if it does not exist, of the closest one above it that does.
func DiskSizeAt(dir string) (Disk, error) {
	for {
		size, err := DiskSize(dir)
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return size, err
		}
		dir = parent
	}
}

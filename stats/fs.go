package stats

import (
	"math"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxFileSystems is the number of file systems that are looked at in a reading. Their
// directories come from the runtime.
const maxFileSystems = 16

// fsSize is the size of a file system.
type fsSize struct{ capacity, available, used, inodes, inodesFree uint64 }

// fileSystems are the file systems that were looked at in a reading, by directory. nil: one
// that cannot be looked at.
type fileSystems map[string]*fsSize

func (f fileSystems) get(dir string) *fsSize {
	if size, ok := f[dir]; ok {
		return size
	}
	if !filepath.IsAbs(dir) || len(f) >= maxFileSystems {
		return nil
	}
	f[dir] = nil
	if size, err := statfs(dir); err == nil {
		f[dir] = &size
	}
	return f[dir]
}

// whole returns the usage of the file system of a directory; nil if it cannot be read.
func (f fileSystems) whole(dir string, now time.Time) *statsv1alpha1.FsStats {
	size := f.get(dir)
	if size == nil {
		return nil
	}
	out := size.stats(now)
	inodes := size.inodes - min(size.inodes, size.inodesFree)
	out.UsedBytes, out.InodesUsed = &size.used, &inodes
	return out
}

// part returns what the runtime uses of a file system.
func (f fileSystems) part(u runtime.FsUsage, now time.Time) *statsv1alpha1.FsStats {
	out := f.share(&statsv1alpha1.FsStats{}, u.Mountpoint, now)
	if out.CapacityBytes == nil && u.CapacityBytes >= 0 && u.AvailableBytes >= 0 {
		capacity, available := uint64(u.CapacityBytes), uint64(u.AvailableBytes)
		out.CapacityBytes, out.AvailableBytes = &capacity, &available
	}
	if u.UsedBytes >= 0 {
		used := uint64(u.UsedBytes)
		out.UsedBytes = amount(&used)
	}
	return out
}

// share adds the size of the file system of a directory to what something uses of it.
func (f fileSystems) share(usage *statsv1alpha1.FsStats, dir string, now time.Time) *statsv1alpha1.FsStats {
	out := &statsv1alpha1.FsStats{Time: metav1.NewTime(now)}
	if size := f.get(dir); size != nil {
		out = size.stats(now)
	}
	if !usage.Time.IsZero() {
		out.Time = usage.Time
	}
	out.UsedBytes, out.InodesUsed = usage.UsedBytes, usage.InodesUsed
	return out
}

func (s *fsSize) stats(now time.Time) *statsv1alpha1.FsStats {
	return &statsv1alpha1.FsStats{Time: metav1.NewTime(now), CapacityBytes: &s.capacity, AvailableBytes: &s.available, Inodes: &s.inodes, InodesFree: &s.inodesFree}
}

// sizeOf returns the size from the figures of statfs(2).
func sizeOf(unit, blocks, free, available, inodes, inodesFree uint64) fsSize {
	bytes := func(n uint64) uint64 {
		if unit != 0 && n > math.MaxUint64/unit {
			return 0
		}
		return n * unit
	}
	return fsSize{capacity: bytes(blocks), available: bytes(available), used: bytes(blocks - min(blocks, free)), inodes: inodes, inodesFree: inodesFree}
}

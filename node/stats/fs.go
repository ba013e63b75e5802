package stats

import (
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxFileSystems is the number of file systems that are looked at in a reading. Their
// directories come from the runtime.
const maxFileSystems = 16

// fileSystems are the file systems that were looked at in a reading, by directory. nil: one
// that cannot be looked at.
type fileSystems map[string]*safefile.Disk

func (f fileSystems) get(dir string) *safefile.Disk {
	if size, ok := f[dir]; ok {
		return size
	}
	if !filepath.IsAbs(dir) || len(f) >= maxFileSystems {
		return nil
	}
	f[dir] = nil
	if size, err := safefile.DiskSize(dir); err == nil {
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
	out, inodes := sizeStats(size, now), size.InodesUsed()
	out.UsedBytes, out.InodesUsed = &size.Used, &inodes
	return out
}

// part returns what the runtime uses of a file system. The inodes used are those of the whole file system, as with
// kubelet.
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
	if size := f.get(u.Mountpoint); size != nil {
		inodes := size.InodesUsed()
		out.InodesUsed = &inodes
	}
	return out
}

// share adds the size of the file system of a directory to what something uses of it.
func (f fileSystems) share(usage *statsv1alpha1.FsStats, dir string, now time.Time) *statsv1alpha1.FsStats {
	out := &statsv1alpha1.FsStats{Time: metav1.NewTime(now)}
	if size := f.get(dir); size != nil {
		out = sizeStats(size, now)
	}
	if !usage.Time.IsZero() {
		out.Time = usage.Time
	}
	out.UsedBytes, out.InodesUsed = usage.UsedBytes, usage.InodesUsed
	return out
}

func sizeStats(s *safefile.Disk, now time.Time) *statsv1alpha1.FsStats {
	return &statsv1alpha1.FsStats{Time: metav1.NewTime(now), CapacityBytes: &s.Capacity, AvailableBytes: &s.Available,
		Inodes: &s.Inodes, InodesFree: &s.InodesFree}
}

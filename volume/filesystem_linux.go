package volume

import (
	"golang.org/x/sys/unix"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// fileSystem returns the usage of the file system of a directory.
func fileSystem(dir string) (statsv1alpha1.FsStats, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return statsv1alpha1.FsStats{}, err
	}
	unit := uint64(max(st.Bsize, 0))
	if st.Frsize > 0 {
		unit = uint64(st.Frsize)
	}
	capacity, available, used := st.Blocks*unit, st.Bavail*unit, (st.Blocks-min(st.Blocks, st.Bfree))*unit
	inodesUsed := st.Files - min(st.Files, st.Ffree)
	return statsv1alpha1.FsStats{
		CapacityBytes: &capacity, AvailableBytes: &available, UsedBytes: &used, Inodes: &st.Files, InodesFree: &st.Ffree, InodesUsed: &inodesUsed,
	}, nil
}

package kubeletkit

import "golang.org/x/sys/unix"

// totalMemory is the memory of the machine, in bytes.
func totalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

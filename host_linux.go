package kubeletkit

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// totalMemory is the memory of the machine, in bytes.
func totalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// kernelRelease is the release of the running kernel; "" if it cannot be read.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// hasAppArmor looks at the two files that kubelet looks at.
func hasAppArmor() bool {
	if _, err := os.Stat("/sys/kernel/security/apparmor"); err != nil {
		return false
	}
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && bytes.HasPrefix(enabled, []byte("Y"))
}

// Package machine has facts of the machine and its kernel.
package machine

import (
	"bytes"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// TotalMemory is the memory of the machine, in bytes.
func TotalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// KernelRelease is the release of the running kernel; "" if it cannot be read.
func KernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// InUserNamespace reports whether this process is in another user namespace than the initial one.
func InUserNamespace() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && IsUserNamespace(string(users))
}

// IsUserNamespace reports whether a uid_map file is not that of the initial user namespace.
func IsUserNamespace(uidMap string) bool {
	return !slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}

// HasAppArmor looks at the two files that kubelet looks at.
func HasAppArmor() bool {
	if _, err := os.Stat("/sys/kernel/security/apparmor"); err != nil {
		return false
	}
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && bytes.HasPrefix(enabled, []byte("Y"))
}

// HasSELinux reports whether SELinux is on, and has a policy: without one, every process has the label "kernel"
// (kubelet: selinux.GetEnabled).
func HasSELinux() bool {
	if _, err := os.Lstat("/sys/fs/selinux/enforce"); err != nil {
		return false
	}
	label, err := os.ReadFile("/proc/self/attr/current")
	return err == nil && string(bytes.TrimRight(label, "\x00\n ")) != "kernel"
}

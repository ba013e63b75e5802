// Package machine has facts of the machine and its kernel.
package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// FileLabel returns the SELinux label that container runtimes give to files by default, and an empty one if SELinux is
// off or the policy has none (go-selinux: ContainerLabels). It has a level if the policy has levels.
func FileLabel() string {
	if !HasSELinux() {
		return ""
	}
	contexts, err := os.ReadFile("/usr/share/containers/selinux/contexts")
	if err != nil {
		config, _ := os.ReadFile("/etc/selinux/config")
		contexts, _ = os.ReadFile(filepath.Join("/etc/selinux", setting(string(config), "SELINUXTYPE"),
			"contexts/lxc_contexts"))
	}
	return FileLabelIn(string(contexts))
}

// FileLabelIn returns the label in a file lxc_contexts.
func FileLabelIn(contexts string) string {
	process := strings.SplitN(setting(contexts, "process"), ":", 4)
	file := strings.SplitN(setting(contexts, "file"), ":", 4)
	if len(process) < 3 || len(file) < 3 {
		return ""
	}
	if len(process) == 4 && len(file) == 3 {
		file = append(file, process[3])
	}
	return strings.Join(file, ":")
}

// setting returns the value in a line NAME=VALUE of a file of SELinux.
func setting(file, name string) string {
	for line := range strings.Lines(file) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == name {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// MayMount reports whether this process may mount file systems on disks and of servers: it has CAP_SYS_ADMIN in the
// initial user namespace.
func MayMount() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err != nil || HasAdmin(string(status)) && !InUserNamespace()
}

// HasAdmin reports whether a file /proc/<pid>/status has CAP_SYS_ADMIN in its effective capabilities.
func HasAdmin(status string) bool {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && caps&(1<<unix.CAP_SYS_ADMIN) != 0
}

//go:build !linux

package machine

import "errors"

// TotalMemory is not supported.
func TotalMemory() (int64, error) { return 0, errors.ErrUnsupported }

// KernelRelease returns "".
func KernelRelease() string { return "" }

// InUserNamespace returns false.
func InUserNamespace() bool { return false }

// HasAppArmor returns false.
func HasAppArmor() bool { return false }

// HasSELinux returns false.
func HasSELinux() bool { return false }

// FileLabel returns "".
func FileLabel() string { return "" }

// MayMount reports whether this process may mount file systems on disks and of servers.
func MayMount() bool { return false }

// ReleaseProgram does nothing.
func ReleaseProgram() {}

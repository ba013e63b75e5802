//go:build !linux

package kubeletkit

import "errors"

func totalMemory() (int64, error) { return 0, errors.ErrUnsupported }

func kernelRelease() string { return "" }

func hasAppArmor() bool { return false }

package mounting

import "io/fs"

// IsBlockDevice reports whether a file with the mode is a block device.
func IsBlockDevice(mode fs.FileMode) bool {
	return mode&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice
}

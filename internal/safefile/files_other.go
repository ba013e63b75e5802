//go:build !unix

package safefile

import "io/fs"

const onlyDirectory = 0

// allocated returns the size of a file in bytes.
func allocated(info fs.FileInfo) uint64 { return uint64(max(0, info.Size())) }

//go:build !unix

package stats

import "io/fs"

// allocated returns the size of a file in bytes.
func allocated(info fs.FileInfo) uint64 { return uint64(max(0, info.Size())) }

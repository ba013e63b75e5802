//go:build unix

package safefile

import (
	"io/fs"
	"syscall"
)

const onlyDirectory = syscall.O_DIRECTORY | syscall.O_NONBLOCK

// allocated returns the size of the blocks of a file in bytes.
func allocated(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(max(0, st.Blocks)) * 512
	}
	return uint64(max(0, info.Size()))
}

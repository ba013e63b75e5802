//go:build unix

package volume

import (
	"io/fs"
	"syscall"
)

// allocated returns a file's identity, its blocks in bytes, and how many names it
// has. st_blocks counts units of 512 bytes whatever the file system (stat(2)).
func allocated(info fs.FileInfo) (id fileID, bytes int64, links uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, info.Size(), 1
	}
	return fileID{uint64(st.Dev), uint64(st.Ino)}, int64(st.Blocks) * 512, uint64(st.Nlink)
}

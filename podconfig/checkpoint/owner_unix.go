//go:build unix

package checkpoint

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses a file that another user may have written.
func checkOwner(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return fmt.Errorf("belongs to user %d, not to the agent's user %d", stat.Uid, uid)
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return fmt.Errorf("has mode %04o: other users can write to it", perm)
	}
	return nil
}

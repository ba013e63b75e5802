package supervise

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// exitSize is the size in bytes that is reserved for the record of an end: one block of most file
// systems. A record is larger only if its Error is.
const exitSize = 4096

// reserveExit takes the space for the record of the container's end.
func reserveExit(dir string) error {
	return os.WriteFile(filepath.Join(dir, reservedFile), make([]byte, exitSize), 0o600)
}

// WriteExit records the end of the container in dir, so that the record survives a power loss. It
// needs no space if the supervisor has reserved it and the file system writes in place: the
// container may have filled the disk. A supervisor of an earlier version has reserved none.
func WriteExit(dir string, exit Exit) error {
	data, err := json.Marshal(exit)
	if err != nil {
		return err
	}
	reserved := filepath.Join(dir, reservedFile)
	f, err := os.OpenFile(reserved, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	if err == nil {
		err = f.Truncate(int64(len(data)) + 1)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(reserved, filepath.Join(dir, ExitFile)); err != nil {
		return err
	}
	return Sync(dir)
}

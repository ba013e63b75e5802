package volume

import (
	"time"

	"golang.org/x/sys/unix"
)

// stamp tells two states of a file apart.
type stamp struct {
	dev, ino uint64
	size     int64
	mode     uint32
	changed  int64 // nanoseconds
}

// stampOf returns the stamp of a file, and when it changed last.
func stampOf(name string) (stamp, time.Time, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return stamp{}, time.Time{}, err
	}
	at := time.Unix(st.Ctim.Unix())
	return stamp{st.Dev, st.Ino, st.Size, st.Mode, at.UnixNano()}, at, nil
}

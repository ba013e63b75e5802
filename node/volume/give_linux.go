package volume

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOf returns the user and the group that a file belongs to, -1 if they are not known.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}

// groupOf returns the group of the file.
func groupOf(info fs.FileInfo) (gid int, ok bool) {
	_, gid = ownerOf(info)
	return gid, gid >= 0
}

// giveTree gives a directory and all below it to the group, which may read and write the
// files, and make files in the directories that belong to it, too. Links are given and not
// followed. What is mounted below is left as it is. The directory itself comes last, so that
// it shows that all is done. files counts what was given.
func giveTree(ctx context.Context, dir string, gid int, files *atomic.Int64) error {
	t, err := openTree(dir)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer t.close()
	give := func(e entry) (bool, error) {
		files.Add(1)
		isDir, err := giveAt(t.fd, e.name, t.dev, gid)
		if err == nil && isDir {
			err = t.down(e.name, e.next)
		}
		switch {
		case err == nil:
			return isDir, nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
			errors.Is(err, unix.EXDEV):
			return false, nil // it was removed or replaced
		default:
			return false, &fs.PathError{Op: "chown", Path: e.name, Err: err}
		}
	}
	for {
		more, err := t.read(ctx, give)
		if err == nil && !more {
			if more, err = t.up(); err == nil && !more {
				_, err = giveAt(unix.AT_FDCWD, dir, t.dev, gid)
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// giveAt gives one file to the group. It reports whether it is a directory to be entered. It
// fails with EXDEV if the file is on another device than dev.
func giveAt(at int, name string, dev uint64, gid int) (isDir bool, err error) {
	fd, err := openSub(at, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if uint64(st.Dev) != dev {
		return false, unix.EXDEV
	}
	if int(st.Gid) != gid {
		if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
			return false, err
		}
	}
	mode := st.Mode & 0o7777
	want := mode | 0o660
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return false, nil
	case unix.S_IFDIR:
		isDir, want = true, want|unix.S_ISGID|0o110
	}
	if want == mode && int(st.Gid) == gid {
		return isDir, nil
	}
	return isDir, unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), want)
}

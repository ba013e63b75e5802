package volume

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tree in a volume is made by containers. It can be deeper than any path is long and
// than there are descriptors, and directories can move while the tree is read. So a walk
// has one descriptor, that of the current directory, goes down by name and up by "..",
// and checks where it arrives.

// treeBuffer is the size of a read of a directory. It is read again after each
// subdirectory, from there on.
const treeBuffer = 4 << 10

// tree is a walk through a tree.
type tree struct {
	fd  int // of the current directory
	dev uint64
	ino uint64
	// at is the offset of the next read in the current directory.
	at    int64
	above []level
	buf   []byte
}

// level is a directory above the current one.
type level struct {
	dev, ino uint64
	// at is where its list continues.
	at int64
}

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK

// openTree begins a walk. The directories above dir are trusted.
func openTree(dir string) (*tree, error) {
	fd, err := openat(unix.AT_FDCWD, dir, openDir)
	if err != nil {
		return nil, err
	}
	t := &tree{fd: fd, buf: make([]byte, treeBuffer)}
	if t.dev, t.ino, err = identify(fd); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tree) close() { _ = unix.Close(t.fd) }

func identify(fd int) (dev, ino uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return uint64(st.Dev), st.Ino, err
}

// down enters a directory. The list of the current one continues at an offset when the
// walk comes back.
func (t *tree) down(name string, at int64) error {
	if len(t.above) >= maxTreeDepth {
		return errTooDeep
	}
	fd, err := openSub(t.fd, name, openDir)
	if err != nil {
		return err
	}
	dev, ino, err := identify(fd)
	if err != nil || dev != t.dev {
		_ = unix.Close(fd)
		return errors.Join(err, unix.EXDEV)
	}
	t.above = append(t.above, level{t.dev, t.ino, at})
	t.close()
	t.fd, t.dev, t.ino, t.at = fd, dev, ino, 0
	return nil
}

// openSub opens what is in a directory, and no link. It fails with EXDEV if something is
// mounted there: a bind mount, which has the device of its source, is seen by openat2 only
// (Linux 5.6). A path, with AT_FDCWD, is trusted but for its last element.
func openSub(dir int, name string, flags int) (fd int, err error) {
	if dir == unix.AT_FDCWD {
		return openat(dir, name, flags)
	}
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS}
	for {
		switch fd, err = unix.Openat2(dir, name, how); {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			return openat(dir, name, flags)
		default:
			return fd, err
		}
	}
}

// up goes back to the directory above. It returns false at the top.
func (t *tree) up() (bool, error) {
	if len(t.above) == 0 {
		return false, nil
	}
	back := t.above[len(t.above)-1]
	fd, err := openat(t.fd, "..", openDir)
	if err != nil {
		return false, err
	}
	dev, ino, err := identify(fd)
	if err == nil && (dev != back.dev || ino != back.ino) {
		err = errMoved
	}
	if err == nil {
		_, err = unix.Seek(fd, back.at, unix.SEEK_SET)
	}
	if err != nil {
		_ = unix.Close(fd)
		return false, err
	}
	t.above = t.above[:len(t.above)-1]
	t.close()
	t.fd, t.dev, t.ino, t.at = fd, dev, ino, back.at
	return true, nil
}

// entry is one of the names in a directory.
type entry struct {
	name string
	// at is the offset of the entry, next that of the one behind it.
	at, next int64
}

// read calls f for the next entries, until f returns true. It returns false at the end of
// the directory.
func (t *tree) read(ctx context.Context, f func(entry) (stop bool, err error)) (more bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	n, err := unix.Getdents(t.fd, t.buf)
	switch {
	case errors.Is(err, unix.EINTR):
		return true, nil
	case errors.Is(err, unix.ENOENT): // it was removed
		return false, nil
	case err != nil || n == 0:
		return false, err
	}
	// struct linux_dirent64 (getdents(2)): d_ino, d_off, d_reclen, d_type, d_name.
	for rest := t.buf[:n]; len(rest) >= 19; {
		size := int(binary.NativeEndian.Uint16(rest[16:]))
		if size < 19 || size > len(rest) {
			return false, unix.EIO
		}
		name, _, _ := bytes.Cut(rest[19:size], []byte{0})
		e := entry{string(name), t.at, int64(binary.NativeEndian.Uint64(rest[8:]))}
		rest, t.at = rest[size:], e.next
		if e.name == "." || e.name == ".." {
			continue
		}
		if stop, err := f(e); stop || err != nil {
			return true, err
		}
	}
	return true, nil
}

// inodes bounds a walk by the inodes of the file system. While a tree is read, a container can move what
// was read to where it is read again, so that the walk never ends. Such a walk finds more files
// than there are.
type inodes struct {
	fd int
	// found are those that the walk has found. A file of several names is found in parts.
	found float64
	// most is the largest number that is possible, as it was looked up last.
	most float64
}

const (
	// replaced is the number of files that can be removed after the walk has found them, so that
	// others have their inodes, beside as many as there are.
	replaced = 10_000
	// uncounted is the largest number in a file system that does not count its inodes, such as btrfs, or of which
	// none are in use by its own account, such as CephFS.
	uncounted = 100_000_000
)

// add adds a name of a file. It fails if there are more files than the file system has.
func (i *inodes) add(links uint64) error {
	if i.found += 1 / float64(max(1, links)); i.found <= i.most {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(i.fd, &st); err != nil {
		return err
	}
	if i.most = mostInodes(st.Files, st.Ffree); i.found > i.most {
		return errMoved
	}
	return nil
}

// mostInodes returns how many inodes a walk can find in a file system with so many, some of which are free.
func mostInodes(all, free uint64) float64 {
	if free >= all {
		return uncounted
	}
	return 2*float64(all-free) + replaced
}

// diskUsage adds up the blocks of the files below dir, in bytes, each file once however
// many names it has: each name counts for its share, and a file cannot have a name
// outside of its volume. What is mounted below dir does not count.
func diskUsage(ctx context.Context, dir string) (int64, error) {
	sum, _, err := treeUsage(ctx, dir, math.MaxInt64)
	return sum, err
}

// treeUsage is diskUsage with the number of files and directories. A file of several names counts
// once for each. It ends when the sum is more than enough.
func treeUsage(ctx context.Context, dir string, enough int64) (sum, files int64, err error) {
	t, err := openTree(dir)
	if errors.Is(err, unix.ENOENT) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer t.close()
	var st unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return 0, 0, err
	}
	top, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(top) }()
	before, all := stepsOf(ctx), inodes{fd: top}
	sum, files = st.Blocks*512, 1 // of 512 bytes whatever the file system (stat(2))
	measure := func(e entry) (bool, error) {
		if before != nil {
			if err := before.step("look at %s", e.name); err != nil {
				return false, err
			}
		}
		var st unix.Stat_t
		err := unix.Fstatat(t.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) || err == nil && uint64(st.Dev) != t.dev {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		size := st.Blocks * 512
		files++
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			links := max(1, int64(st.Nlink))
			sum += (size + links - 1) / links
			return false, all.add(uint64(links))
		}
		sum += size
		if err := all.add(1); err != nil { // the links of a directory are not names
			return false, err
		}
		switch err := t.down(e.name, e.next); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
			errors.Is(err, unix.EXDEV):
			return false, nil // it was replaced
		default:
			return false, err
		}
	}
	for {
		more, err := t.read(ctx, measure)
		if err == nil && !more {
			if more, err = t.up(); err == nil && !more {
				return sum, files, nil
			}
		}
		if err != nil || sum > enough {
			return sum, files, err
		}
	}
}

// removeAll removes a directory and everything below it, or a file. It does not cross a
// mount. It succeeds if there is nothing.
func removeAll(ctx context.Context, path string) error {
	if err := removeTree(ctx, path); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// removeMounted is removeAll for a directory in which something may be mounted. It reads the
// list of mounts, which is as long as the node has pods, only if something is.
func removeMounted(ctx context.Context, dir string) error {
	err := removeAll(ctx, dir)
	if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := unmountBelow(dir); err != nil {
		return fmt.Errorf("unmounting: %w", err)
	}
	return removeAll(ctx, dir)
}

func removeTree(ctx context.Context, path string) error {
	full, err := removeAt(unix.AT_FDCWD, path)
	if err != nil || !full {
		return err
	}
	t, err := openTree(path)
	if errors.Is(err, unix.EACCES) && allowOwner(unix.AT_FDCWD, path) == nil {
		t, err = openTree(path)
	}
	if err != nil {
		return err
	}
	defer t.close()
	top, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(top) }()
	var (
		// again means that the current directory has to be read once more: the list may have
		// left out some names while others were removed.
		again bool
		// moved is the number of directories that were moved to the top.
		moved, seen int
	)
	// The modes of directories can forbid their removal to an agent without CAP_DAC_OVERRIDE.
	remove := func(e entry) (bool, error) {
		full, err := removeAt(t.fd, e.name)
		if errors.Is(err, unix.EACCES) && unix.Fchmod(t.fd, 0o700) == nil {
			full, err = removeAt(t.fd, e.name)
		}
		if err == nil && !full {
			again = true
			return false, nil
		}
		if err == nil {
			err = t.down(e.name, e.at)
		}
		if errors.Is(err, unix.EACCES) && full && allowOwner(t.fd, e.name) == nil {
			err = t.down(e.name, e.at)
		}
		if errors.Is(err, errTooDeep) {
			moved++
			again = true
			_ = allowOwner(t.fd, e.name) // a directory must be writable to be moved
			return false, t.moveTo(top, e.name)
		}
		if err != nil {
			return false, fmt.Errorf("%q: %w", e.name, err)
		}
		again = false
		return true, nil
	}
	for {
		more, err := t.read(ctx, remove)
		if err == nil && !more {
			if len(t.above) == 0 && moved > seen {
				again, seen = true, moved
			}
			if again {
				again, t.at = false, 0
				_, err = unix.Seek(t.fd, 0, unix.SEEK_SET)
			} else if more, err = t.up(); err == nil && !more {
				return unix.Rmdir(path)
			} else {
				// Before Linux 6.6, offsets in a tmpfs are numbers of entries, which others have after a removal.
				again = true
			}
		}
		if err != nil {
			return err
		}
	}
}

// moveTo moves what has the name in the current directory to the top of the tree. Its new name is
// random: a container could have planted one that it can predict, which would make the removal
// fail each time.
func (t *tree) moveTo(top int, name string) (err error) {
	for range 8 { // in case that the name is there nevertheless
		err = unix.Renameat2(t.fd, name, top, ".deep-"+rand.Text(), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	return err
}

// allowOwner lets the owner of a directory read, change and enter it.
func allowOwner(dir int, name string) error {
	fd, err := openSub(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}

// removeAt removes a file or an empty directory. full means that it is a directory with
// something in it. Nothing at which something is mounted is removed: the error is EBUSY.
func removeAt(dir int, name string) (full bool, err error) {
	err = unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		if dirErr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(dirErr, unix.ENOTDIR) {
			err = dirErr
		}
	}
	switch {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	default:
		return false, err
	}
}

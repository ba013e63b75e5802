package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openInside returns a descriptor of what is at the path below the volume, after making
// directories if it is missing. The descriptor is one of O_PATH: what is there, which may
// be a device, a pipe or a socket, is not opened. Links are followed inside the volume
// only. If keep is true, nothing is made and no mode is changed.
func openInside(volume, path string, keep bool, before steps) (*os.File, error) {
	fd, err := openat(unix.AT_FDCWD, volume, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: volume, Err: err}
	}
	root := os.NewFile(uintptr(fd), volume)
	defer func() { _ = root.Close() }()
	f, err := openBeneath(root, path)
	if keep && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it does not exist, and the volume is read-only: %w", err)
	}
	if err == nil && !keep {
		if err = finish(root, f, before); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	if !keep && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EACCES)) { // or below an unfinished directory
		f, err = makeBeneath(root, path, openBeneath, before)
	}
	if errors.Is(err, unix.EXDEV) {
		err = fmt.Errorf("it leads out of the volume: %w", err)
	}
	return f, err
}

// openBeneath is [walkBeneath] in one call where the kernel has it (Linux 5.6) and no
// seccomp filter refuses it.
func openBeneath(root *os.File, path string) (*os.File, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for range 8 {
		fd, err := unix.Openat2(int(root.Fd()), path, how)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), filepath.Join(root.Name(), path)), nil
		case unix.EAGAIN, unix.EINTR:
		case unix.ENOSYS, unix.EPERM, unix.EXDEV: // EXDEV is also for absolute links that stay below root
			return walkBeneath(root, path)
		default:
			return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
		}
	}
	// EAGAIN: at a "..", something on the machine had just been renamed. A container can do that
	// all the time.
	return walkBeneath(root, path)
}

const (
	// maxLinks is the number of links that are followed in one path, as in the kernel.
	maxLinks = 40
	// maxDepth bounds the descriptors that a walk has open.
	maxDepth = 256
)

// walkBeneath returns a descriptor of O_PATH of what is at the path below root. It follows
// links, and fails with EXDEV if one leads out of root. A link to an absolute path is followed if
// the path begins with that of root, and then from root on.
func walkBeneath(root *os.File, path string) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "openat", Path: path, Err: err} }
	switch {
	case path == "":
		return fail(unix.ENOENT)
	case filepath.IsAbs(path):
		return fail(unix.EXDEV)
	}
	// The directories from root down to the current one; above[0] is root.
	above := []*os.File{root}
	defer func() {
		for _, dir := range above[1:] {
			_ = dir.Close()
		}
	}()
	rest, links := strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		here := above[len(above)-1]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(above) == 1 {
				return fail(unix.EXDEV)
			}
			_ = here.Close()
			above = above[:len(above)-1]
			continue
		}
		if len(above) > maxDepth {
			return fail(unix.ENAMETOOLONG)
		}
		fd, err := openat(int(here.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return fail(err)
		}
		f := os.NewFile(uintptr(fd), filepath.Join(here.Name(), name))
		above = append(above, f)
		info, err := f.Stat()
		if err != nil {
			return fail(err)
		}
		if info.IsDir() || info.Mode().Type() != fs.ModeSymlink && len(rest) == 0 {
			continue
		}
		if info.Mode().Type() != fs.ModeSymlink {
			return fail(unix.ENOTDIR)
		}
		above = above[:len(above)-1]
		target, err := readlink(f)
		_ = f.Close()
		if err != nil {
			return fail(err)
		}
		if links++; links > maxLinks {
			return fail(unix.ELOOP)
		}
		if filepath.IsAbs(target) {
			inside, err := relativeTo(root, target)
			if err != nil {
				return fail(err)
			}
			for _, dir := range above[1:] {
				_ = dir.Close()
			}
			above, target = above[:1], inside
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	last := above[len(above)-1]
	fd, err := unix.FcntlInt(last.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), last.Name()), nil
}

// relativeTo returns the part of an absolute path that is below root. It fails with EXDEV if the path
// does not begin with that of root. ".." in the result is left to the walk.
func relativeTo(root *os.File, path string) (string, error) {
	real, err := pathOf(root)
	if err != nil {
		return "", err
	}
	inside, ok := strings.CutPrefix(path, strings.TrimSuffix(real, "/"))
	if !ok || inside != "" && inside[0] != '/' {
		return "", unix.EXDEV
	}
	return inside, nil
}

func readlink(f *os.File) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// makeBeneath makes what is missing of the path below root, directories with the mode of
// root, and opens it.
func makeBeneath(root *os.File, path string, open func(*os.File, string) (*os.File, error),
	before steps) (*os.File, error) {
	above, err := open(root, ".")
	if err != nil {
		return nil, err
	}
	var done string
	for name := range strings.SplitSeq(filepath.Clean(path), "/") {
		done = filepath.Join(done, name)
		f, err := open(root, done)
		if errors.Is(err, fs.ErrNotExist) {
			if err = before.step("make %s", done); err == nil {
				err = makeDirAt(above, name)
			}
			if err == nil {
				f, err = open(root, done)
			}
		}
		_ = above.Close()
		if err != nil {
			return nil, err
		}
		if err := finish(root, f, before); err != nil {
			_ = f.Close()
			return nil, err
		}
		above = f
	}
	return above, nil
}

// unfinished is the mode of a directory between the calls that make it and that give it its own. It is
// independent of the umask, so that such a directory is recognised after a crash, and containers
// do not use it.
const unfinished = unix.S_ISVTX

// makeDirAt makes a directory that is unfinished.
func makeDirAt(above *os.File, name string) error {
	err := unix.Mkdirat(int(above.Fd()), name, unfinished)
	if errors.Is(err, unix.EEXIST) {
		return nil // it was made meanwhile, or is a link to nothing, which cannot be opened
	}
	if err != nil {
		return &fs.PathError{Op: "mkdirat", Path: filepath.Join(above.Name(), name), Err: err}
	}
	return nil
}

// finish gives a directory that is unfinished the mode of root, its sticky bit included, whatever the umask of this
// process. It changes nothing else.
func finish(root, dir *os.File, before steps) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o1777 != unfinished {
		return nil
	}
	var of unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &of); err != nil {
		return err
	}
	if err := before.step("chmod %s", dir.Name()); err != nil {
		return err
	}
	// The set-group-ID bit comes from the directory above, too.
	mode := st.Mode&unix.S_ISGID | of.Mode&0o7777
	return os.NewSyscallError("chmod", unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), mode))
}

// openat opens a path, again if a signal interrupts that.
func openat(dir int, path string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(dir, path, flags|unix.O_CLOEXEC, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

package volume

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/machine"
)

// bindOpened mounts the opened file or directory at target and returns target. It
// does nothing if the file is mounted there already. Where the process may not mount, the
// error wraps EPERM.
func bindOpened(f *os.File, target string, before steps) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if there, err := os.Stat(target); err == nil && os.SameFile(info, there) {
		return target, nil
	}
	if err := before.step("unmount %s", target); err != nil {
		return "", err
	}
	if err := unmountAt(target); err != nil { // an earlier mount of something else
		return "", err
	}
	if err := before.step("make %s", target); err != nil {
		return "", err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return "", err
	}
	if err := before.step("mount %s", target); err != nil {
		return "", err
	}
	opened := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err = unix.Mount(opened, target, "", unix.MS_BIND, "")
	if err != nil {
		return "", os.NewSyscallError("mount", err)
	}
	return target, nil
}

// pathOf returns the path of an opened file, without symbolic links.
func pathOf(f *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// makeTarget makes a mount point: a directory, or a file for anything else. One of the
// other kind is from a time when something else was at the path, and is replaced.
func makeTarget(target string, dir bool) error {
	info, err := os.Lstat(target)
	switch {
	case err == nil && info.IsDir() == dir:
		return nil
	case err == nil:
		err = os.Remove(target)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(target), 0o750)
	}
	if err != nil {
		return err
	}
	if dir {
		return os.Mkdir(target, 0o750)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// mountTmpfs mounts a file system in memory. A size of 0 is the kernel's default,
// half of the machine's memory.
func mountTmpfs(dir string, size int64, a access) error {
	data := a.mountOptions()
	if size > 0 {
		data += ",size=" + strconv.FormatInt(size, 10)
	}
	var err error = unix.EINVAL
	if hasNoswap() {
		err = mountMemory("tmpfs", dir, data+",noswap")
	}
	if errors.Is(err, unix.EINVAL) { // also in a user namespace
		err = mountMemory("tmpfs", dir, data)
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("mounting a tmpfs: %w; the agent needs CAP_SYS_ADMIN for it", err)
	}
	if err != nil {
		return fmt.Errorf("mounting a tmpfs (%s): %w", data, err)
	}
	return nil
}

// resizeTmpfs changes the size of the file system in memory at dir, if one is mounted there and has another size. A
// file system that holds more keeps its size, which is an error.
func resizeTmpfs(dir string, size int64) error {
	mounted, err := isMountPoint(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
		return nil // it is made with its size
	}
	var now unix.Statfs_t
	if err == nil {
		err = unix.Statfs(dir, &now)
	}
	if page := int64(os.Getpagesize()); err != nil || int64(now.Blocks) == (size+page-1)/page {
		return err
	}
	remount := func(data string) error {
		return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, data)
	}
	data := "size=" + strconv.FormatInt(size, 10)
	err = unix.EINVAL
	if hasNoswap() { // it would not stay
		err = remount(data + ",noswap")
	}
	if errors.Is(err, unix.EINVAL) {
		err = remount(data)
	}
	if used := int64(now.Blocks-now.Bfree) * now.Bsize; errors.Is(err, unix.EINVAL) && used > size {
		return fmt.Errorf("it holds %d bytes, more than %d", used, size)
	}
	return err
}

// mountHugePages mounts a file system on huge pages of that size, in bytes. If limit is nil or
// 0, all pages of the machine fit in it.
func mountHugePages(dir string, size int64, limit *resource.Quantity, a access) error {
	if err := mountMemory("hugetlbfs", dir, hugePageOptions(size, limit, a)); err != nil {
		return fmt.Errorf("mounting a hugetlbfs with pages of %d bytes: %w; the kernel must have such pages, and "+
			"the agent CAP_SYS_ADMIN", size, err)
	}
	return nil
}

func hugePageOptions(size int64, limit *resource.Quantity, a access) string {
	data := a.mountOptions() + ",pagesize=" + strconv.FormatInt(size, 10)
	if limit != nil && limit.Sign() > 0 {
		data += ",size=" + strconv.FormatInt(limit.Value(), 10) // the kernel rounds down to whole pages
	}
	return data
}

func mountMemory(typ, dir, data string) error {
	return unix.Mount(typ, dir, typ, unix.MS_NOSUID|unix.MS_NODEV, data)
}

// mountOptions are the mode and the group of a file system in memory. If everybody may write to it, it has the sticky
// bit, as in kubelet, which leaves it as the kernel makes it.
func (a access) mountOptions() string {
	mode := uint32(a.mode.Perm())
	if a.mode&fs.ModeSticky != 0 || mode&0o002 != 0 {
		mode |= unix.S_ISVTX
	}
	if a.mode&fs.ModeSetgid != 0 {
		mode |= unix.S_ISGID
	}
	data := fmt.Sprintf("mode=%04o", mode)
	if a.gid >= 0 {
		data += ",gid=" + strconv.Itoa(a.gid)
	}
	return data
}

// hasNoswap reports whether a tmpfs can be kept out of swap. Since Linux 6.4 that works with
// all its options (kubelet: IsTmpfsNoswapOptionSupported). An older kernel would log the
// option that it does not know each time.
func hasNoswap() bool {
	var major, minor int
	_, err := fmt.Sscanf(machine.KernelRelease(), "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 4)
}

// memoryMaySwap reports whether swap is on and a tmpfs cannot be kept out of it.
func memoryMaySwap() bool {
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return false
	}
	return swapIsOn(string(swaps)) && (!hasNoswap() || machine.InUserNamespace())
}

// swapIsOn reports whether the file /proc/swaps has a line below its heading.
func swapIsOn(swaps string) bool { return strings.Contains(strings.TrimSpace(swaps), "\n") }

// isMountPoint reports whether a file system of its own is mounted at dir.
func isMountPoint(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &fs.PathError{Op: "lstat", Path: filepath.Dir(dir), Err: err}
	}
	return here.Dev != above.Dev, nil
}

// unmountOwn unmounts the file system that SetUp has mounted at dir, if there is one. It
// does not read the list of mounts, which is as long as the node has pods.
func unmountOwn(dir string) error {
	mounted, err := isMountPoint(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !mounted {
		return err
	}
	err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) { // something is mounted in it
		return unmountBelow(dir)
	}
	if err != nil {
		return &fs.PathError{Op: "unmount", Path: dir, Err: err}
	}
	return nil
}

// unmountAt is unmountBelow for a mount point of a sub-path. A pod can have thousands of them. The list of mounts,
// which is as long, is read only if something is mounted below it, or if the kernel does not tell.
func unmountAt(target string) error {
	for range 8 {
		switch err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); {
		case err == nil: // something may have been mounted there before
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // it is no mount point
			return nil
		default:
			return unmountBelow(target)
		}
	}
	return unmountBelow(target)
}

// unmountBelow unmounts everything that is mounted at dir or below it, the
// innermost first. When it returns nil, nothing is.
func unmountBelow(dir string) error {
	real, err := filepath.EvalSymlinks(dir) // the kernel lists real paths
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		real = dir
	}
	return unmountAll(real)
}

// unmountAll is unmountBelow for a path without symbolic links.
func unmountAll(dir string) error {
	// One round is enough, unless something is mounted meanwhile.
	for range 8 {
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		if nested(points) {
			if err := leavePeers(dir); err != nil {
				return err
			}
		}
		for _, p := range slices.Backward(points) {
			if err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				return &fs.PathError{Op: "unmount", Path: p, Err: err}
			}
		}
	}
	return fmt.Errorf("%s: something keeps being mounted there", dir)
}

// mountsBelow returns the mount points at dir and below, in the order of mounting.
// dir must have no symbolic links.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parseMountInfo(f, dir)
}

// parseMountInfo reads the mount points at dir and below from a mountinfo file.
func parseMountInfo(r io.Reader, dir string) ([]string, error) {
	var points []string
	err := eachMount(r, func(p, _ string) {
		if isBelow(p, dir) {
			points = append(points, p)
		}
	})
	return points, err
}

// eachMount calls f with each mount point of a mountinfo file (proc_pid_mountinfo(5)), its fifth
// field, and with the fields that follow.
func eachMount(r io.Reader, f func(point, rest string)) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if fields := strings.SplitN(sc.Text(), " ", 6); len(fields) == 6 {
			f(unescape(fields[4]), fields[5])
		}
	}
	return sc.Err()
}

// isBelow reports whether the mount point is dir or below it.
func isBelow(point, dir string) bool { return point == dir || strings.HasPrefix(point, dir+"/") }

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

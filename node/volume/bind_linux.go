package volume

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attributes returns what a mount option sets and clears of a mount, for mount_setattr(2). All
// other options are those of a file system, and the kernel ignores them for a bind mount.
func attributes(option string) (set, unset uint64) {
	for _, a := range []struct {
		on, off string
		flag    uint64
	}{
		{"ro", "rw", unix.MOUNT_ATTR_RDONLY},
		{"nosuid", "suid", unix.MOUNT_ATTR_NOSUID},
		{"nodev", "dev", unix.MOUNT_ATTR_NODEV},
		{"noexec", "exec", unix.MOUNT_ATTR_NOEXEC},
		{"nosymfollow", "symfollow", unix.MOUNT_ATTR_NOSYMFOLLOW},
		{"nodiratime", "diratime", unix.MOUNT_ATTR_NODIRATIME},
	} {
		switch option {
		case a.on:
			return a.flag, 0
		case a.off:
			return 0, a.flag
		}
	}
	switch option {
	case "noatime":
		return unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME
	case "strictatime":
		return unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME
	case "relatime", "atime":
		return unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME
	}
	return 0, 0
}

// allAttributes returns what the options set and clear. Of two that contradict each other, the later
// one counts.
func allAttributes(options []string) (set, unset uint64) {
	for _, o := range options {
		s, u := attributes(o)
		set, unset = set&^(s|u)|s, unset&^(s|u)|u
	}
	return set, unset
}

// bindWith mounts the directory source at target, an empty directory, with the options. What is
// mounted below source is not there, as in kubelet. The mount has its options from the first
// moment on, so that after a crash it is either complete or not there.
func bindWith(source, target string, options []string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return bindError("open_tree", err)
	}
	defer func() { _ = unix.Close(tree) }()
	// As a slave it follows what is mounted on the host at source later, and its unmount does not
	// unmount that on the host. Then it is shared, which mountPropagation: Bidirectional requires.
	set, unset := allAttributes(options)
	for _, a := range []unix.MountAttr{{Attr_set: set, Attr_clr: unset, Propagation: unix.MS_SLAVE},
		{Propagation: unix.MS_SHARED}} {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &a); err != nil {
			return bindError("mount_setattr", err)
		}
	}
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", unix.AT_FDCWD, target,
		unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// bindError adds to the error of a system call what the call needs, if that is missing.
func bindError(call string, err error) error {
	failed := os.NewSyscallError(call, err)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w; the agent needs CAP_SYS_ADMIN for mount options", failed)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w; mount options need Linux 5.12", failed)
	default:
		return failed
	}
}

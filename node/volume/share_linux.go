package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Share makes the directory a shared mount unless it is on one, as kubelet does with its root directory:
// otherwise a container with the mount propagation HostToContainer or Bidirectional of a path in it does
// not start. It needs CAP_SYS_ADMIN. If something is mounted below the directory, which a new mount would
// hide, it fails. The mount stays.
func Share(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	on, below, err := mountOf(f, dir)
	switch {
	case err != nil:
		return err
	case on.shared:
		return nil
	case on.point != dir && below != "":
		return fmt.Errorf("%s cannot become a shared mount while %s is mounted", dir, below)
	case on.point != dir:
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		err = fmt.Errorf("making %s a shared mount: %w", dir, err)
		if on.point != dir {
			err = errors.Join(err, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW))
		}
		return err
	}
	return nil
}

type mount struct {
	point  string
	shared bool
}

// mountOf reads the mount of a directory from a mountinfo file, and a mount point below the directory, if there is one.
func mountOf(r io.Reader, dir string) (on mount, below string, err error) {
	err = eachMount(r, func(p, rest string) {
		switch {
		case p != dir && isBelow(p, dir):
			below = p
		case (p == "/" || isBelow(dir, p)) && len(p) >= len(on.point): // of two at one point the later one
			options, _, _ := strings.Cut(rest, " - ")
			on = mount{p, strings.Contains(options, " shared:")}
		}
	})
	return on, below, err
}

package volume

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// leavePeers makes the mounts at dir and below slaves of the mounts elsewhere that they are peers
// of. A bind mount, such as that of a sub-path, is a peer of the mount that it shows. What is
// mounted on the host in that is mounted in the bind mount, too, and its unmount there would
// unmount it on the host.
func leavePeers(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	peers, err := parsePeers(f, dir)
	if err != nil {
		return err
	}
	for _, p := range peers {
		if err := unix.Mount("", p, "", unix.MS_SLAVE, ""); err != nil && !errors.Is(err, unix.EINVAL) {
			return &fs.PathError{Op: "make slave", Path: p, Err: err}
		}
	}
	return nil
}

// nested reports whether one of the mount points is at or below another.
func nested(points []string) bool {
	sorted := slices.Clone(points)
	for i := range sorted {
		sorted[i] += "/" // so that what is below follows at once
	}
	slices.Sort(sorted)
	for i := 1; i < len(sorted); i++ {
		if strings.HasPrefix(sorted[i], sorted[i-1]) {
			return true
		}
	}
	return false
}

// parsePeers reads from a mountinfo file the mount points at dir and below that are peers of a
// mount elsewhere. Each peer group has a number: "shared:7".
func parsePeers(r io.Reader, dir string) ([]string, error) {
	type mount struct{ point, group string }
	var inside []mount
	outside := map[string]bool{}
	err := eachMount(r, func(p, rest string) {
		group := ""
		for _, f := range strings.Split(rest, " ")[1:] { // after the options, and before the type
			if f == "-" {
				break
			}
			if strings.HasPrefix(f, "shared:") {
				group = f
			}
		}
		switch {
		case group == "":
		case isBelow(p, dir):
			inside = append(inside, mount{p, group})
		default:
			outside[group] = true
		}
	})
	var peers []string
	for _, m := range inside {
		if outside[m.group] {
			peers = append(peers, m.point)
		}
	}
	return peers, err
}

package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// letReach lets the user of a container pass through the directories of the agent that lead to
// the container's mounts. Container runtimes mount as root, so that the modes of these
// directories do not matter; here they would keep the container from its own volumes. Only
// this user gets the permission, with an ACL, and only to pass: what is in the directories
// keeps its modes, and other users remain outside.
func (s *Server) letReach(rec *containerRecord) error {
	if s.opts.AgentDir == "" || !s.host.root() || rec.User.UID == 0 {
		return nil
	}
	s.reaching.Lock() // an ACL is read, changed and written
	defer s.reaching.Unlock()
	var errs []error
	for _, m := range rec.Config.GetMounts() {
		below, ok := strings.CutPrefix(filepath.Clean(m.GetHostPath()), filepath.Join(s.opts.AgentDir, "pods")+"/")
		if !ok {
			continue
		}
		above := strings.Split("pods/"+below, "/")
		if err := letPass(s.opts.AgentDir, above[:len(above)-1], rec.User); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.GetHostPath(), err))
		}
	}
	return errors.Join(errs...)
}

// letPass lets a user pass through the directory and those with the names below it. It ends
// where a directory is not only this process's own: the content of a volume begins there.
func letPass(dir string, names []string, user supervise.User) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Open(dir, flags, 0)
	for {
		if err != nil {
			return &fs.PathError{Op: "open", Path: dir, Err: err}
		}
		own, err := letPassOne(fd, user)
		if err != nil || !own || len(names) == 0 {
			_ = unix.Close(fd)
			if err != nil {
				return &fs.PathError{Op: "adding an ACL to", Path: dir, Err: err}
			}
			return nil
		}
		dir = filepath.Join(dir, names[0])
		var next int
		next, err = unix.Openat(fd, names[0], flags|unix.O_NOFOLLOW, 0)
		_ = unix.Close(fd)
		fd, names = next, names[1:]
		if err != nil {
			return &fs.PathError{Op: "open", Path: dir, Err: err}
		}
	}
}

// letPassOne reports whether the directory is this process's own, and adds to its ACL if so.
func letPassOne(fd int, user supervise.User) (own bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if int(st.Uid) != unix.Geteuid() || st.Mode&0o022 != 0 {
		return false, nil
	}
	if st.Mode&0o001 != 0 { // every user may pass
		return true, nil
	}
	list, err := readACL(fd, st.Mode)
	if err != nil {
		return true, err
	}
	// With an ACL, the mode of the group is the mask: what the ACL can permit to others than
	// the owner.
	mask := uint16(st.Mode >> 3 & 7)
	at := slices.IndexFunc(list, func(e aclEntry) bool { return e.tag == aclUser && e.id == user.UID })
	switch {
	case at < 0:
		list = append(list, aclEntry{aclUser, 1, user.UID})
	case list[at].perm&mask&1 != 0:
		return true, nil
	default:
		list[at].perm |= 1
	}
	err = writeACL(fd, list, mask|1)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) {
		// There are too many users. Most of them are of containers that do not exist any more;
		// a container that exists gets its permission again with its next instance.
		list = slices.DeleteFunc(list,
			func(e aclEntry) bool { return e.tag == aclUser && e.perm == 1 && e.id != user.UID })
		err = writeACL(fd, list, mask|1)
	}
	return true, err
}

// aclName is the extended attribute of an ACL (acl(5)). Its value has a version and entries.
const (
	aclName    = "system.posix_acl_access"
	aclVersion = 2
	aclNoID    = 1<<32 - 1
)

// Tags of entries, in the order that the kernel requires.
const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

// aclEntry is an entry of an ACL. The permissions are those of a digit of a mode.
type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// readACL returns the ACL of a file without its mask. It is that of the mode if it has no
// other one.
func readACL(fd int, mode uint32) ([]aclEntry, error) {
	buf := make([]byte, 64<<10) // the maximum of an extended attribute
	n, err := unix.Fgetxattr(fd, aclName, buf)
	if errors.Is(err, unix.ENODATA) {
		return []aclEntry{
			{aclUserObj, uint16(mode >> 6 & 7), aclNoID}, {aclGroupObj, uint16(mode >> 3 & 7), aclNoID},
			{aclOther, uint16(mode & 7), aclNoID},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	return parseACL(buf[:n])
}

func parseACL(data []byte) ([]aclEntry, error) {
	if len(data) < 4 || binary.LittleEndian.Uint32(data) != aclVersion || len(data)%8 != 4 {
		return nil, errors.New("an ACL in an unknown format")
	}
	var list []aclEntry
	for data = data[4:]; len(data) > 0; data = data[8:] {
		e := aclEntry{binary.LittleEndian.Uint16(data), binary.LittleEndian.Uint16(data[2:]),
			binary.LittleEndian.Uint32(data[4:])}
		if e.tag != aclMask {
			list = append(list, e)
		}
	}
	return list, nil
}

// writeACL sets the ACL of a file, from a list without a mask.
func writeACL(fd int, list []aclEntry, mask uint16) error {
	list = append(slices.Clone(list), aclEntry{aclMask, mask, aclNoID})
	slices.SortStableFunc(list, func(a, b aclEntry) int { return int(a.tag) - int(b.tag) })
	data := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range list {
		data = binary.LittleEndian.AppendUint16(data, e.tag)
		data = binary.LittleEndian.AppendUint16(data, e.perm)
		data = binary.LittleEndian.AppendUint32(data, e.id)
	}
	return unix.Fsetxattr(fd, aclName, data, 0)
}

package safefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Tags of entries of an ACL (acl(5)).
const (
	aclUser  = 0x02
	aclGroup = 0x08
	aclMask  = 0x10
)

// checkACL returns an error if an ACL lets another user, or a group that is not trusted, write
// to a directory. The mode does not show that: with an ACL, the permissions of the group in it
// are those that the ACL can give to anybody.
func checkACL(dir string, own process) error {
	buf := make([]byte, 64<<10) // the maximum of an extended attribute
	n, err := unix.Lgetxattr(dir, "system.posix_acl_access", buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil
	case err != nil:
		return &fs.PathError{Op: "reading the ACL of", Path: dir, Err: err}
	}
	const write = 2
	who, mask := "", uint16(write)
	for data := buf[min(4, n):n]; len(data) >= 8; data = data[8:] { // after the version
		tag, perm, id := binary.LittleEndian.Uint16(data), binary.LittleEndian.Uint16(data[2:]),
			int(binary.LittleEndian.Uint32(data[4:]))
		switch {
		case tag == aclMask:
			mask = perm
		case perm&write == 0:
		case tag == aclUser && id != 0 && id != own.uid:
			who = userName(id)
		case tag == aclGroup && !own.trustsGroup(id):
			who = fmt.Sprint("group ", id)
		}
	}
	if who == "" || mask&write == 0 {
		return nil
	}
	return fmt.Errorf("%s has an ACL, and can be written by %s; "+mend, dir, who, userName(own.uid))
}

package safefile_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// An ACL can let others write, which the mode shows as permissions of the group.
func TestDirectoriesWithACLs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: of other users, the group may not be trusted in any case")
	}
	const (
		userObj, user, groupObj, group, mask, other = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
		noID                                        = 1<<32 - 1
	)
	for name, tc := range map[string]struct {
		user, group, mask uint16
		err               string
	}{
		"a user":       {user: 7, group: 5, mask: 7, err: "can be written by user 65534"},
		"a group":      {user: 5, group: 7, mask: 7, err: "can be written by group 65533"},
		"masked":       {user: 7, group: 7, mask: 5},
		"to read only": {user: 5, group: 5, mask: 7},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			require.NoError(t, os.Mkdir(dir, 0o700))
			acl := binary.LittleEndian.AppendUint32(nil, 2)
			for _, e := range [][3]uint32{
				{userObj, 7, noID}, {user, uint32(tc.user), 65534}, {groupObj, 5, noID}, {group, uint32(tc.group), 65533}, {mask, uint32(tc.mask), noID}, {other, 0, noID},
			} {
				acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
				acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
				acl = binary.LittleEndian.AppendUint32(acl, e[2])
			}
			if err := unix.Setxattr(dir, "system.posix_acl_access", acl, 0); errors.Is(err, unix.ENOTSUP) {
				t.Skip("the file system has no ACLs")
			} else {
				require.NoError(t, err)
			}
			for _, made := range []string{dir, filepath.Join(dir, "below")} {
				err := safefile.MakeDir(made, 0o700)
				if tc.err == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, dir+" has an ACL, and "+tc.err)
				}
			}
		})
	}
}

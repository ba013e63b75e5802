package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDir makes the directory and its parents if they do not exist, and checks that no other
// user can put something there, or something else in its place. Each directory and each link
// in the path must belong to this user or to root, and nobody else may write to it:
//
//   - In a parent with the sticky bit, such as /tmp, others may make files. They cannot
//     rename those of this user.
//   - The group may write if it is group 0, or this process's own if it does not run as root.
//   - An ACL counts as the mode does (acl(5)), on Linux.
//   - In a user namespace, the owner of a parent may be unknown. It is most often root outside
//     of the namespace, as for /.
//
// So an agent of root refuses a directory below the home of another user, who could rename it
// and make another one in its place. The same rule is that of sshd (StrictModes).
//
// The error says which directory is at fault, and what to do. It wraps an error of the file
// system if a directory cannot be made or read. On systems other than unix, nothing is checked.
func MakeDir(path string, perm os.FileMode) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	// Before, too: nothing is made in the directory of another user.
	if err := check(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(path, perm); err != nil {
		return err
	}
	return check(path)
}

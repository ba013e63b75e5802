//go:build unix

package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is the maximum number of symbolic links in a path, as in Linux.
const maxLinks = 40

// check checks the directory and its parents, from the root on, with the links between them.
// The path is absolute.
func check(path string) error {
	own := self()
	at, rest, links := "/", strings.Split(path, "/"), 0
	for {
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		for len(rest) > 0 && (rest[0] == "" || rest[0] == ".") {
			rest = rest[1:]
		}
		if err := own.trusts(path, at, info, len(rest) > 0); err != nil {
			return err
		}
		if info.IsDir() && info.Mode().Perm()&0o020 != 0 && (len(rest) == 0 || info.Mode()&fs.ModeSticky == 0) {
			if err := checkACL(at, own); err != nil {
				return err
			}
		}
		if info.Mode().Type() == fs.ModeSymlink {
			if links++; links > maxLinks {
				return &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
			}
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			rest = append(strings.Split(target, "/"), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
			continue
		}
		if len(rest) == 0 {
			return nil
		}
		// at has no links in it, so ".." is its parent.
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// process is the process that trusts a directory or does not.
type process struct {
	uid, gid int
	// unknown is the owner of what belongs to users outside of the user namespace. It is -1
	// if there are none.
	unknown int
}

func self() process { return process{os.Geteuid(), os.Getegid(), unknownOwner()} }

// trusts returns an error if another user controls the directory or link at. path is what is
// checked, of which at is a parent or the directory itself.
func (p process) trusts(path, at string, info fs.FileInfo, parent bool) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its owner is not known", at)
	}
	link := info.Mode().Type() == fs.ModeSymlink
	owner, group, mode := int(stat.Uid), int(stat.Gid), info.Mode()
	trusted := owner == 0 || owner == p.uid || (parent || link) && owner == p.unknown
	me := userName(p.uid)
	switch {
	case !trusted && !parent && !link:
		return fmt.Errorf("%s belongs to %s, and this process runs as %s; "+mend, at, userName(owner), me, me)
	case !trusted:
		return fmt.Errorf("%s belongs to %s, who can replace %s, and this process runs as %s; run it as that user, "+
			"or choose a directory whose parents belong to %[4]s", at, userName(owner), path, me)
	case link, parent && mode&fs.ModeSticky != 0:
		return nil // the mode of a link means nothing
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("%s has mode %04o and can be written by every user; "+mend, at, mode.Perm(), me)
	case mode.Perm()&0o020 != 0 && !p.trustsGroup(group):
		return fmt.Errorf("%s has mode %04o and can be written by group %d; "+mend, at, mode.Perm(), group, me)
	}
	return nil
}

// mend is the advice about a directory that others can write to.
const mend = "mend its owner and mode, or choose a directory that only %s can write to"

// trustsGroup reports whether a group may write.
func (p process) trustsGroup(group int) bool { return group == 0 || p.uid != 0 && group == p.gid }

// userName returns "user 1000 (alice)".
func userName(uid int) string {
	if uid == 0 {
		return "root"
	}
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return "user " + id + " (" + u.Username + ")"
	}
	return "user " + id
}

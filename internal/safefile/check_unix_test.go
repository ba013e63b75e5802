//go:build unix

package safefile

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

type info struct {
	fs.FileInfo
	mode fs.FileMode
	stat syscall.Stat_t
}

func (i info) Mode() fs.FileMode { return i.mode }
func (i info) Sys() any          { return &i.stat }

func TestTrusts(t *testing.T) {
	root, alice := process{unknown: -1}, process{uid: 1000, gid: 1000, unknown: -1}
	inNamespace := process{unknown: 65534}
	for _, c := range []struct {
		about      string
		process    process
		uid, gid   uint32
		mode       fs.FileMode
		parent, ok bool
	}{
		{about: "own", process: alice, uid: 1000, gid: 1000, mode: 0o755, ok: true},
		{about: "of root", process: alice, mode: 0o755, parent: true, ok: true},
		{about: "of another user", process: alice, uid: 1001, gid: 1001, mode: 0o755, parent: true},
		{about: "of a user, for root", process: root, uid: 1000, gid: 1000, mode: 0o755, parent: true},
		{about: "/tmp", process: alice, mode: 0o777 | fs.ModeSticky, parent: true, ok: true},
		{about: "/tmp itself", process: alice, mode: 0o777 | fs.ModeSticky},
		{about: "own group", process: alice, uid: 1000, gid: 1000, mode: 0o775, ok: true},
		{about: "own group, for root", process: process{gid: 1000, unknown: -1}, gid: 1000, mode: 0o775},
		{about: "group 0", process: root, mode: 0o775, ok: true},
		{about: "another group", process: alice, uid: 1000, gid: 100, mode: 0o775},
		{about: "a link", process: alice, mode: 0o777 | fs.ModeSymlink, parent: true, ok: true},
		{about: "a link as the directory", process: alice, mode: 0o777 | fs.ModeSymlink, ok: true},
		{about: "/ in a user namespace", process: inNamespace, uid: 65534, gid: 65534, mode: 0o755, parent: true, ok: true},
		{about: "/tmp in a user namespace", process: inNamespace, uid: 65534, gid: 65534, mode: 0o777 | fs.ModeSticky, parent: true, ok: true},
		{about: "the directory, of an unknown user", process: inNamespace, uid: 65534, gid: 65534, mode: 0o755},
		{about: "a parent that an unknown group can write to", process: inNamespace, uid: 65534, gid: 65534, mode: 0o775, parent: true},
		{about: "of user 65534, who is not unknown", process: root, uid: 65534, gid: 65534, mode: 0o755, parent: true},
	} {
		err := c.process.trusts("/at/path", "/at", info{mode: c.mode, stat: syscall.Stat_t{Uid: c.uid, Gid: c.gid}},
			c.parent)
		assert.Equal(t, c.ok, err == nil, "%s: %v", c.about, err)
	}
}

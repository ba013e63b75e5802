package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

const (
	// defaultRoot is the cgroup that has those of the pods.
	defaultRoot = "kubeletkit"
	// serverLeaf is the cgroup that the server moves itself and its supervisors into.
	serverLeaf = "kubeletkit-server"
)

// delegated returns the directory of the root of version 2, in a cgroup whose controllers this process
// may enable. It is "" if there is none. own is the cgroup of this process.
//
// A cgroup with processes has no controllers for the cgroups in it, except for the root of the hierarchy.
// So a process that is alone in its cgroup moves into one in it. Whoever has made the cgroup has given it to
// this process then: systemd puts nothing else there.
func delegated(mount supervise.CgroupMount, own string) string {
	dir := mount.Path(own)
	if dir == "" || !canWrite(mount.Point) && !canWrite(dir) {
		return ""
	}
	if filepath.Base(dir) == serverLeaf { // an earlier server in this process has moved it
		dir = filepath.Dir(dir)
	}
	err := enable(dir, "+memory")
	if errors.Is(err, unix.EBUSY) && moveServer(dir) {
		err = enable(dir, "+memory")
	}
	if err != nil {
		dir = mount.Point
		err = enable(dir, "+memory")
	}
	if err != nil {
		return ""
	}
	enableControllers(dir)
	return filepath.Join(dir, defaultRoot)
}

func canWrite(dir string) bool {
	return unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) == nil
}

// moveServer moves this process out of its cgroup into one in it, and reports whether it has. It does not
// if another process is there.
func moveServer(dir string) bool {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || string(bytes.TrimSpace(procs)) != strconv.Itoa(os.Getpid()) {
		return false
	}
	leaf := filepath.Join(dir, serverLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return false
	}
	return os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0) == nil
}

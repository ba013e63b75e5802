//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// agentDir makes the directories of an agent and of a pod, as the agent makes them, and
// returns an emptyDir.
func agentDir(t *testing.T, perm os.FileMode) (dir, volume string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containers of other users")
	}
	temp := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(temp), 0o711)) // all users may pass, as in /var/lib
	dir = filepath.Join(temp, "agent")
	require.NoError(t, os.Mkdir(dir, perm))
	volume = filepath.Join(dir, "pods", "uid", "volumes", "kubernetes.io~empty-dir", "data")
	require.NoError(t, os.MkdirAll(volume, 0o750))
	require.NoError(t, os.Chmod(volume, 0o777))
	fd, err := unix.Open(dir, unix.O_RDONLY, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	if _, err := readACL(fd, 0); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this file system has no ACLs")
	}
	return dir, volume
}

// A container with runAsUser can use its emptyDir, and no other user can.
func TestRunAsUserReachesItsVolumes(t *testing.T) {
	for _, perm := range []os.FileMode{0o700, 0o750} {
		t.Run(fmt.Sprintf("%#o", perm), func(t *testing.T) {
			dir, volume := agentDir(t, perm)
			n := startNode(t, Options{Dir: filepath.Join(dir, "process"), AgentDir: dir + "/"})
			p := n.pod()
			secret := filepath.Join(dir, "pods", "uid", "secret")
			require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
			as := func(user int64, name string, mounts ...*criv1.Mount) int32 {
				config := shell(name, fmt.Sprintf(`
					cat %[1]s && exit 10
					ls %[2]s && exit 11
					ls %[2]s/process && exit 12
					ls %[2]s/pods && exit 13
					echo hi > %[3]s/%[4]s`, secret, dir, volume, name))
				config.Mounts = mounts
				config.Linux.SecurityContext = &criv1.LinuxContainerSecurityContext{
					RunAsUser: &criv1.Int64Value{Value: user}, RunAsGroup: &criv1.Int64Value{Value: user},
				}
				id := p.run(config)
				st := n.exited(id)
				if st.GetExitCode() == 0 {
					assert.FileExists(t, filepath.Join(volume, name))
				}
				return st.GetExitCode()
			}
			mount := &criv1.Mount{HostPath: volume, ContainerPath: volume}
			assert.EqualValues(t, 2, as(4012345678, "without")) // it cannot write
			assert.Zero(t, as(4012345678, "first", mount))
			assert.Zero(t, as(4012345678, "again", mount))
			assert.EqualValues(t, 2, as(4012345679, "other"), "another user, with another container")
			assert.Zero(t, as(4012345679, "second", mount))

			for _, path := range []string{dir, filepath.Join(dir, "pods"), filepath.Dir(volume)} {
				info, err := os.Stat(path)
				require.NoError(t, err)
				assert.Zero(t, info.Mode().Perm()&0o027, "others get nothing, the group may at most do what it could")
			}
			// The next server, and the agent, accept the directory.
			n.restart()
			_, err := n.rs.Status(context.Background(), &criv1.StatusRequest{})
			require.NoError(t, err)
		})
	}
}

// What is in a volume belongs to its containers. They must not have the ACL of a directory
// outside changed by a link.
func TestReachStopsAtTheVolume(t *testing.T) {
	dir, volume := agentDir(t, 0o700)
	outside := filepath.Join(dir, "outside")
	require.NoError(t, os.MkdirAll(filepath.Join(outside, "in"), 0o700))
	require.NoError(t, os.Symlink(outside, filepath.Join(volume, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(volume, "sub"), 0o700))
	user := supervise.User{UID: 4012345678, GID: 4012345678}
	names := []string{"pods", "uid", "volumes", "kubernetes.io~empty-dir", "data"}
	require.NoError(t, letPass(dir, append(names, "link", "in"), user))
	require.NoError(t, letPass(dir, append(names, "sub"), user))
	for _, path := range []string{outside, filepath.Join(outside, "in"), filepath.Join(volume, "sub"), volume} {
		_, err := unix.Getxattr(path, aclName, nil)
		assert.ErrorIs(t, err, unix.ENODATA, path)
	}
	// A link in the agent's own directories is not followed.
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "pods", "link")))
	require.Error(t, letPass(dir, []string{"pods", "link", "in"}, user))
	_, err := unix.Getxattr(outside, aclName, nil)
	assert.ErrorIs(t, err, unix.ENODATA)
}

// The number of entries of an ACL is limited.
func TestReachOfManyUsers(t *testing.T) {
	dir, _ := agentDir(t, 0o700)
	const many = 12_000 // ext4 has room for about 500, XFS for about 10,000
	for uid := range uint32(many) {
		require.NoError(t, letPass(dir, nil, supervise.User{UID: 1000 + uid}))
	}
	fd, err := unix.Open(dir, unix.O_RDONLY, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	list, err := readACL(fd, 0)
	require.NoError(t, err)
	assert.Contains(t, list, aclEntry{aclUser, 1, 1000 + many - 1}, "the latest")
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.EqualValues(t, 0o710, info.Mode().Perm())
}

// A container of another user whose program is set-user-ID has the privileges of its owner: a tracer would take them.
func TestSetUserIDProgram(t *testing.T) {
	dir, _ := agentDir(t, 0o755)
	program := filepath.Join(dir, "id")
	data, err := os.ReadFile("/usr/bin/id")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, data, 0o755))
	require.NoError(t, os.Chmod(program, os.ModeSetuid|0o755))
	n := startNode(t, Options{Dir: filepath.Join(dir, "process"), AgentDir: dir + "/"})
	p := n.pod()
	config := shell("c", "")
	config.Command, config.Args = []string{program}, nil
	config.Linux.SecurityContext = &criv1.LinuxContainerSecurityContext{RunAsUser: &criv1.Int64Value{Value: 65533},
		RunAsGroup: &criv1.Int64Value{Value: 65533}}
	id := p.run(config)
	n.exited(id)
	assert.Contains(t, p.log("c"), "uid=65533 gid=65533 euid=0(root)")
}

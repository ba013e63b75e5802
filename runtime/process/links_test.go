//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// linked returns a container that reads a file through a mount at the path.
func linked(name, at, from string) *criv1.ContainerConfig {
	config := shell(name, "cat "+at+"/key")
	config.Mounts = []*criv1.Mount{{ContainerPath: at, HostPath: from, Readonly: true}}
	return config
}

// Links are made for pods that request them, and removed with the sandbox, also by the next
// server. What else is at a path stays.
func TestLinks(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	dir, volumes := t.TempDir(), t.TempDir()
	at := filepath.Join(dir, "conf")
	for _, volume := range []string{"a", "b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(volumes, volume), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(volumes, volume, "key"), []byte("value-"+volume+"\n"), 0o600))
	}
	a, b := filepath.Join(volumes, "a"), filepath.Join(volumes, "b")
	mode := func(config *criv1.PodSandboxConfig) { config.Annotations = map[string]string{MountsAnnotation: "link"} }
	records := func() int {
		entries, err := os.ReadDir(filepath.Join(n.opts.Dir, "links"))
		require.NoError(t, err)
		return len(entries)
	}
	p := n.podWith(mode)
	for _, name := range []string{"c", "again"} { // the second finds the link
		id := p.run(linked(name, at, a))
		require.Zero(t, n.exited(id).GetExitCode())
		assert.Contains(t, p.log(name), "F value-a\n")
	}
	assert.Equal(t, 1, records())
	_, err := p.create(linked("other", at, b))
	require.ErrorContains(t, err, "another container of the pod has a link there")
	_, err = n.podWith(mode).create(linked("c", at, a))
	require.ErrorContains(t, err, "the path is a link of the pod with UID")
	_, err = p.create(linked("taken", dir, a))
	require.ErrorContains(t, err, "something is at the path")
	_, err = p.create(linked("deep", filepath.Join(dir, "no", "conf"), a))
	require.ErrorContains(t, err, "the directory above must exist")
	if os.Geteuid() == 0 {
		config := linked("other-user", filepath.Join(dir, "other"), a)
		config.Linux.SecurityContext = &criv1.LinuxContainerSecurityContext{RunAsUser: &criv1.Int64Value{Value: 65534}}
		_, err = p.create(config)
		require.ErrorContains(t, err, "for the server's own user 0 only")
	}
	own := filepath.Join(dir, "own") // a link that somebody else has made
	require.NoError(t, os.Symlink(a, own))
	require.Zero(t, n.exited(p.run(linked("own", own, a))).GetExitCode())

	n.restart()
	to, err := os.Readlink(at)
	require.NoError(t, err)
	assert.Equal(t, a, to, "the sandbox exists")
	_, err = n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
	require.NoError(t, err)
	_, err = os.Lstat(at)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Lstat(own)
	require.NoError(t, err)

	// A server that ends before the sandbox's record is gone, or before the link is made.
	p = n.podWith(mode)
	p.run(linked("c", at, a))
	n.stop()
	require.NoError(t, os.Remove(filepath.Join(n.opts.Dir, "sandboxes", p.id+".json")))
	require.NoError(t, os.WriteFile(filepath.Join(n.opts.Dir, "links", ".x.json.123"), nil, 0o600))
	n.start()
	_, err = os.Lstat(at)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NoFileExists(t, filepath.Join(n.opts.Dir, "links", ".x.json.123"))
}

// A pod with another UID has the links of one that has stopped, as a static pod that was edited.
// The removal of the old sandbox leaves them.
func TestLinksOfAStoppedPod(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	at := filepath.Join(t.TempDir(), "conf")
	mode := func(config *criv1.PodSandboxConfig) { config.Annotations = map[string]string{MountsAnnotation: "link"} }
	pods, volumes := []*pod{n.podWith(mode), n.podWith(mode)}, []string{t.TempDir(), t.TempDir()}
	for i, p := range pods {
		require.NoError(t, os.WriteFile(filepath.Join(volumes[i], "key"), []byte("value\n"), 0o600))
		require.Zero(t, n.exited(p.run(linked("c", at, volumes[i]))).GetExitCode())
		if i == 0 {
			_, err := pods[1].create(linked("early", at, volumes[1]))
			require.ErrorContains(t, err, "the path is a link of the pod with UID")
			_, err = n.rs.StopPodSandbox(t.Context(), &criv1.StopPodSandboxRequest{PodSandboxId: p.id})
			require.NoError(t, err)
		}
	}
	_, err := n.rs.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: pods[0].id})
	require.NoError(t, err)
	to, err := os.Readlink(at)
	require.NoError(t, err)
	assert.Equal(t, volumes[1], to)
}

// A container that is created while its sandbox is removed leaves no link.
func TestNoLinksInARemovedSandbox(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	at := filepath.Join(t.TempDir(), "conf")
	b, err := n.server.sandbox(p.id)
	require.NoError(t, err)
	_, err = n.rs.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
	require.NoError(t, err)
	require.ErrorContains(t, n.server.makeLinks(b, []link{{at: at, to: t.TempDir()}}), "is being removed")
	_, err = os.Lstat(at)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A record that cannot be read now, as when the server has too many open files, is kept: its link
// could not be removed any more. It fails the removal of its own sandbox only. Records that can be
// read are not affected, and a damaged one is removed.
func TestLinkRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	top, targets := t.TempDir(), t.TempDir()
	s := &Server{opts: Options{Dir: filepath.Join(top, "state")}}
	require.NoError(t, os.MkdirAll(s.linksDir(), 0o700))
	var at []string
	for i := range 3 {
		at = append(at, filepath.Join(top, fmt.Sprint("link", i)))
		require.NoError(t,
			s.makeLink(linkRecord{At: at[i], To: targets, SandboxID: fmt.Sprint("sandbox", i), PodUID: "u"}))
	}
	require.NoError(t, os.WriteFile(s.linkFile(at[2]), []byte("{"), 0o600))
	require.NoError(t, os.Chmod(s.linkFile(at[1]), 0))
	remove := func() error { return s.removeLinks("sandbox1") }
	removeAll := func() (removed, others error) {
		return remove(), errors.Join(s.removeLinks("sandbox0"), s.removeLinks("sandbox2"))
	}
	if os.Geteuid() != 0 {
		removed, others := removeAll()
		require.ErrorIs(t, removed, os.ErrPermission)
		require.NoError(t, others)
	} else {
		const nobody = 65534
		for _, path := range []string{filepath.Dir(top), top, s.opts.Dir, s.linksDir(), s.linkFile(at[0]),
			s.linkFile(at[2])} {
			require.NoError(t, os.Chown(path, nobody, nobody))
		}
		goruntime.LockOSThread() // the user is one of the thread
		err := unix.Setfsuid(nobody)
		removed, others := removeAll()
		_ = unix.Setfsuid(0)
		goruntime.UnlockOSThread()
		require.NoError(t, err)
		require.ErrorIs(t, removed, os.ErrPermission)
		require.NoError(t, others)
	}
	assert.NoFileExists(t, at[0])
	assert.NoFileExists(t, s.linkFile(at[2]))
	assert.FileExists(t, s.linkFile(at[1]))
	require.NoError(t, os.Chmod(s.linkFile(at[1]), 0o600))
	require.NoError(t, remove())
	_, err := os.Lstat(at[1])
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What is made at a path while its link is made is not taken for the link.
func TestTakenPath(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	at := filepath.Join(top, "link")
	require.NoError(t, os.WriteFile(at, nil, 0o600))
	require.ErrorIs(t, symlink("/to", at), errTaken)
	require.NoError(t, os.Remove(at))
	for range 2 {
		require.NoError(t, symlink("/to", at))
	}
	require.ErrorIs(t, symlink("/other", at), errTaken)
	require.ErrorIs(t, symlink("/to", filepath.Join(top, "no", "link")), os.ErrNotExist)
}

package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
)

// If another program removes the cgroup of a pod and those above it, all are made again, with their limits.
func TestRealRemoval(t *testing.T) {
	onRealCgroups(t, ManagerOptions{}, func(t *testing.T, r *real) {
		pod := burstable("removed", "200m", "100Mi")
		prepare(t, r.m, pod, nil)
		at, driver := r.pods.Parent(pod), r.pods.current()
		limits := r.limits(t, at)
		for _, cgroup := range []string{at, r.pods.above(driver, "burstable")} {
			removed := 0
			for name, dir := range r.dirs(cgroup) {
				err := unix.Rmdir(dir)
				if err == nil {
					removed++
				} else if !errors.Is(err, unix.ENOENT) { // controllers may share a hierarchy
					require.NoError(t, err, name)
				}
			}
			require.Positive(t, removed)
		}
		assert.Zero(t, prepare(t, r.m, pod, nil))
		assert.Equal(t, limits, r.limits(t, at))
		require.NoError(t, r.m.updateQoS())
		assert.Equal(t, r.weight(204), r.limits(t, r.pods.above(driver, "burstable"))[0])
	})
}

// A controller that is read-only, or all of them, as in a container without privileges. The test runs itself in a mount
// namespace.
func TestRealReadOnly(t *testing.T) {
	const variable = "KUBELETKIT_TEST_READ_ONLY"
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if inside := os.Getenv(variable); inside != "" {
		readOnly(t, inside == libraryMount)
		return
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip(err)
	}
	paths := []string{libraryMount}
	if !kernelTree(libraryMount).unified() { // the controllers of cgroup v2 share one tree
		paths = append(paths, filepath.Join(libraryMount, "memory"))
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			const script = `mount --rbind "$1" "$1"; grep -o " $1[^ ]* " /proc/self/mounts | sort -u | while read -r at; do mount -o remount,ro,bind "$at"; done; shift; exec "$@"`
			cmd := exec.Command(unshare, "--mount", "--propagation", "private", "sh", "-c", script, "sh", path,
				os.Args[0], "-test.v", "-test.run", "^TestRealReadOnly$")
			cmd.Env = append(os.Environ(), variable+"="+path)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "--- PASS: TestRealReadOnly")
		})
	}
}

// readOnly asserts that pods are prepared without what cannot be written, and that this is logged once.
func readOnly(t *testing.T, all bool) {
	said := make(chan string, 100)
	log := funcr.New(func(_, args string) { said <- args }, funcr.Options{})
	pod := burstable("read-only", "200m", "100Mi")
	if !all {
		onRealCgroups(t, ManagerOptions{}, func(t *testing.T, r *real) {
			r.m.log = log
			stop := run(t, r.m)
			defer stop()
			for range 3 {
				assert.Zero(t, prepare(t, r.m, pod, nil))
			}
			at := r.pods.Parent(pod)
			assert.True(t, r.exists(at))
			assert.Equal(t, "204", r.read(t, at, "cpu", "cpu.shares", ""))
			assert.NoDirExists(t, filepath.Join(libraryMount, "memory", at))
			assert.Contains(t, <-said, `"controllers"=["memory"]`)
		})
	} else {
		pods, err := New(Options{Root: "/kubeletkit-read-only"})
		require.NoError(t, err)
		m, err := NewManager(pods, ManagerOptions{})
		require.NoError(t, err)
		require.NoError(t, m.Join(&nodefake.Node{Log: log}))
		for range 3 {
			assert.Zero(t, prepare(t, m, pod, nil))
			_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod})
			require.NoError(t, err)
		}
		assert.Contains(t, <-said, "no cgroups with limits")
	}
	assert.Empty(t, said, "once")
}

//go:build linux

package csi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/internal/machine"
)

// startSELinux loads the policy of testdata, and enforces it.
func startSELinux(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	command(t, "checkpolicy", "-M", "-U", "allow", "-c", "31", "-o", filepath.Join(dir, "policy"), "testdata/selinux.conf")
	policy, err := os.ReadFile(filepath.Join(dir, "policy"))
	require.NoError(t, err)
	assert.Empty(t, machine.FileLabel(), "there is no policy yet")
	// Those of the guest are gone with it.
	require.NoError(t, os.MkdirAll("/etc/selinux/test/contexts", 0o755))
	for path, content := range map[string]string{"/etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=test\n",
		"/etc/selinux/test/contexts/lxc_contexts": "process = \"system_u:system_r:container_t:s0\"\n" +
			"file = \"" + fileLabel + "\"\n"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	require.NoError(t, unix.Mount("selinuxfs", "/sys/fs/selinux", "selinuxfs", 0, ""))
	require.NoError(t, os.WriteFile("/sys/fs/selinux/load", policy, 0))
	require.NoError(t, os.WriteFile("/sys/fs/selinux/enforce", []byte("1"), 0))
}

// On a kernel that enforces SELinux, the files of a volume have the label of the pod without being relabelled, processes
// with the level read them, others do not, and the next pod with another level has them.
func TestGuestSELinuxMount(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only: go run ./guest")
	}
	startSELinux(t)
	command(t, "modprobe", "loop")
	r := labelled(t, csidriver.Options{FileSystem: "ext4"})
	r.fileLabel = machine.FileLabel()
	require.Equal(t, fileLabel, r.fileLabel)
	r.add("data")
	read := func(level, file string) error {
		return exec.CommandContext(t.Context(), "runcon", "system_u:system_r:container_t:"+level, "cat", file).Run()
	}
	for _, c := range []struct{ pod, level, label, other string }{
		{"web", levelOne, labelOne, levelTwo},
		{"db", levelTwo, labelTwo, levelOne},
	} {
		pod := r.podOf(c.pod, c.level, "data")
		ready := r.mustSetUp(pod)["data"]
		assert.False(t, ready.Relabel)
		file := filepath.Join(ready.HostPath, "file")
		if c.pod == "web" {
			require.NoError(t, os.WriteFile(file, []byte("data"), 0o644))
		}
		r.restart()
		r.mustSetUp(pod)
		label := make([]byte, 100)
		n, err := unix.Lgetxattr(file, "security.selinux", label)
		require.NoError(t, err)
		assert.Equal(t, c.label, string(label[:n-1]))
		assert.Contains(t, command(t, "grep", ready.HostPath, "/proc/self/mountinfo"), `context="`+c.label+`"`)
		assert.NoError(t, read(c.level, file))
		assert.Error(t, read(c.other, file))
		_, err = r.setUp(r.podOf("other", c.other, "data"))
		assert.ErrorContains(t, err, "conflicting SELinux labels of volume data")
		r.mustRemove(r.podOf("other", c.other, "data"))
		r.mustRemove(pod)
	}
	r.isClean()
}

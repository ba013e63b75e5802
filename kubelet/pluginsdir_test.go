package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/check"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/plugin"
)

// shortDir returns a directory whose path is short, for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func pluginsDirOf(t *testing.T, dir, rootDir string) *pluginsDir {
	return &pluginsDir{path: dir, rootDir: rootDir, earlier: filepath.Join(rootDir, "device-plugins"),
		log: testr.New(t)}
}

// Of two agents with root directories of their own, one has the device plugins of the machine. The other one names it,
// and has them when the first has ended. A kubelet locks nothing, but serves its socket.
func TestDirectoryOfDevicePluginsIsInUse(t *testing.T) {
	dir := shortDir(t)
	first, second := pluginsDirOf(t, dir, "/data/first"), pluginsDirOf(t, dir, "/data/second")
	require.NoError(t, first.lock())
	require.NoError(t, first.lock(), "again")
	inUse := fmt.Sprintf(
		"the directory of device plugins, %s, is in use by %%s: stop it, or give this agent one of its "+
			"own with --device-plugins-dir", dir)
	require.EqualError(t, second.lock(), fmt.Sprintf(inUse,
		fmt.Sprintf("another agent (process %d, root directory /data/first)", os.Getpid())))
	first.unlock()
	require.NoError(t, second.lock())
	second.unlock()

	socket := filepath.Join(dir, plugin.SocketName)
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = first.lock()
	require.ErrorContains(t, err, fmt.Sprintf("is in use by the process %d ", os.Getpid()))
	require.ErrorContains(t, err, "that serves kubelet.sock")
	require.NoError(t, l.Close())
	require.FileExists(t, socket)
	require.NoError(t, first.lock(), "a socket that nobody serves is left by one that has ended")
	first.unlock()
}

// An agent without the directory serves no plugins, and its check of them fails, until the other one has ended.
func TestDevicePluginsOfTwoAgents(t *testing.T) {
	dir := shortDir(t)
	other := pluginsDirOf(t, dir, "/data/other")
	require.NoError(t, other.lock())
	own := pluginsDirOf(t, dir, "/data/own")
	manager, err := devices.New(own.checkpoint(), devices.Options{Lock: own.lock})
	require.NoError(t, err)
	server := &pluginServer{dir: own, log: logr.Discard()}
	server.Server, err = plugin.New(dir, manager)
	require.NoError(t, err)
	require.NoError(t, server.Healthy(), "it has not tried")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- server.Run(ctx) }()
		time.Sleep(time.Hour)
		require.ErrorContains(t, server.Healthy(), "root directory /data/other")
		cancel()
		require.NoError(t, <-done)
	})
	assert.NoFileExists(t, filepath.Join(dir, plugin.SocketName))

	other.unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- server.Run(ctx) }()
	require.Eventually(t, func() bool {
		return servedBy(filepath.Join(dir, plugin.SocketName)) != "" && server.Healthy() == nil
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	own.unlock()
}

// The checkpoint that an earlier version has left below its root directory is taken over, once.
func TestEarlierCheckpointOfDevices(t *testing.T) {
	const none, one, other = `{"Data":{"PodDeviceEntries":null}}`, `{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"v"}]}}`
	for _, tc := range []struct{ name, earlier, now, after, stays string }{
		{"moved", one, "", one, ""},
		{"moved over an empty one", one, none, one, ""},
		{"both", one, other, other, one},
		{"the same", one, one, one, ""},
		{"empty", none, "", "", none},
		{"damaged", "{", "", "", "{"},
		{"none", "", other, other, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, dir := t.TempDir(), t.TempDir()
			d := pluginsDirOf(t, dir, root)
			earlier := filepath.Join(root, "device-plugins", devices.CheckpointName)
			require.NoError(t, os.Mkdir(filepath.Dir(earlier), 0o700))
			for path, content := range map[string]string{earlier: tc.earlier, d.checkpoint(): tc.now} {
				if content != "" {
					write(t, path, content)
				}
			}
			require.NoError(t, d.lock())
			defer d.unlock()
			for path, want := range map[string]string{earlier: tc.stays, d.checkpoint(): tc.after} {
				content, _ := os.ReadFile(path)
				assert.Equal(t, want, string(content), path)
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		root, dir := t.TempDir(), t.TempDir()
		d := pluginsDirOf(t, dir, root)
		require.NoError(t, os.Symlink(dir, filepath.Join(root, "device-plugins")))
		write(t, d.checkpoint(), one)
		require.NoError(t, d.lock())
		defer d.unlock()
		content, err := os.ReadFile(d.checkpoint())
		require.NoError(t, err)
		assert.Equal(t, one, string(content))
	})
}

// The check reads the checkpoint of devices and the certificates where the agent does, and one of an earlier version.
func TestCheckOfOtherDirectories(t *testing.T) {
	const one = `{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}`
	root, dir := t.TempDir(), t.TempDir()
	s, err := program.Parse(append(ownDirs(dir), "--root-dir", root, "--container-runtime-endpoint=/none.sock"))
	require.NoError(t, err)
	s.EarlierDevicePluginsDir = filepath.Join(root, "device-plugins") // as without the flag, for root
	earlier := filepath.Join(s.EarlierDevicePluginsDir, devices.CheckpointName)
	now := filepath.Join(s.DevicePluginsDir, devices.CheckpointName)
	cert := filepath.Join(s.CertDir, "kubelet-client-current.pem")
	for _, path := range []string{earlier, now, cert} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	}
	write(t, earlier, one)
	write(t, cert, "")
	verdicts := func() map[string]check.Verdict {
		found := map[string]check.Verdict{}
		for _, f := range append(check.State(stateFiles(s), false), checkEarlierDevices(s)...) {
			found[f.Setting] = f.Verdict
		}
		return found
	}
	assert.Equal(t, map[string]check.Verdict{earlier: check.Kept, cert: check.Kept}, verdicts())
	write(t, now, `{"Data":{"PodDeviceEntries":[{"PodUID":"v"}]}}`)
	assert.Equal(t, map[string]check.Verdict{earlier: check.Lost, now: check.Kept, cert: check.Kept}, verdicts())
}

package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestDirectories(t *testing.T) {
	for _, tt := range []struct {
		uid         int
		embedded    bool
		state, home string
		root, logs  string
	}{
		{0, false, "/s", "/root", "/var/lib/kubelet", "/var/log/pods"},
		{0, true, "/s", "/root", "/var/lib/minikubelet", "/var/lib/minikubelet/logs"},
		{7, true, "/s", "/home/u", "/s/minikubelet", "/s/minikubelet/logs"},
		{7, true, "", "/home/u", "/home/u/.local/state/minikubelet", "/home/u/.local/state/minikubelet/logs"},
		{7, false, "relative", "/home/u", "/home/u/.local/state/minikubelet", "/home/u/.local/state/minikubelet/logs"},
		{7, true, "", "", "", "logs"},
	} {
		env := map[string]string{"XDG_STATE_HOME": tt.state, "HOME": tt.home}
		root := Program{Getenv: func(name string) string { return env[name] }}.rootDirOf(tt.uid, tt.embedded)
		assert.Equal(t, tt.root, root)
		assert.Equal(t, tt.logs, defaultPodLogsDir(tt.uid, root, tt.embedded))
	}
}

// A command finds the agent that runs. If none does, the pods of a container runtime have the directory of one on it.
func TestRootDirOfACommand(t *testing.T) {
	const kubelet, own, endpoint = "/var/lib/kubelet", "/var/lib/minikubelet", "unix:///run/containerd/containerd.sock"
	for _, tt := range []struct{ runs, endpoint, want string }{
		{kubelet, "", kubelet},
		{kubelet, endpoint, kubelet},
		{own, "", own},
		{own, endpoint, own},
		{"", "", own},
		{"", endpoint, kubelet},
	} {
		got := Program{}.runningRootDir(0, tt.endpoint, func(dir string) bool { return dir == tt.runs })
		assert.Equal(t, tt.want, got, tt)
	}
	none := func(string) bool { return false }
	home := Program{Getenv: func(name string) string { return map[string]string{"HOME": "/home/u"}[name] }}
	assert.Equal(t, "/home/u/.local/state/minikubelet", home.runningRootDir(7, endpoint, none))
}

// Device plugins and certificates are not below the root directory of a kubelet, nor of an agent in its place.
func TestKubeletPaths(t *testing.T) {
	const root = "/data/kubelet"
	for name, tc := range map[string]struct {
		uid                   int
		settings              Settings
		given                 bool
		plugins, earlier, pki string
	}{
		"root, container runtime": {0, Settings{}, false, filepath.Clean(deviceplugin.DevicePluginPath), root + "/device-plugins",
			"/var/lib/kubelet/pki"},
		"usual directory": {0, Settings{RootDir: kubeletDir}, false, "/var/lib/kubelet/device-plugins", "",
			"/var/lib/kubelet/pki"},
		"given":            {0, Settings{DevicePluginsDir: "/d", Cluster: Cluster{CertDir: "/c"}}, true, "/d", "", "/c"},
		"none":             {0, Settings{}, true, "", "", "/var/lib/kubelet/pki"},
		"not root":         {7, Settings{}, false, root + "/device-plugins", "", root + "/pki"},
		"embedded runtime": {0, Settings{Embedded: true}, false, root + "/device-plugins", "", root + "/pki"},
		"runtime of the program": {0, Settings{program: Program{OwnRuntime: true}}, false, root + "/device-plugins", "",
			root + "/pki"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.settings
			def(&s.RootDir, root)
			s.kubeletPaths(tc.uid, tc.given)
			assert.Equal(t, tc.plugins, s.DevicePluginsDir)
			assert.Equal(t, tc.earlier, s.EarlierDevicePluginsDir)
			assert.Equal(t, tc.pki, s.CertDir)
			assert.Empty(t, s.Warnings)
		})
	}
}

// The certificates that an earlier version of the agent has requested below its root directory stay there.
func TestEarlierCertificates(t *testing.T) {
	dir, below := t.TempDir(), t.TempDir()
	put := func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kubelet-client-current.pem"), nil, 0o600))
	}
	now := func() string {
		used, stays := certDir(dir, below)
		assert.Equal(t, used == below, stays)
		return used
	}
	assert.Equal(t, dir, now())
	put(below)
	assert.Equal(t, below, now())
	put(dir)
	assert.Equal(t, dir, now())
}

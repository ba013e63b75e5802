package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
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

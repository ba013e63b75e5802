package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// defaultRootDir returns kubelet's directory for root on a container runtime, so that an
// agent can take the place of a kubelet. With the embedded runtime, which may run beside
// a kubelet, it is another directory. For other users it is a directory in their state
// directory (XDG base directory specification), or "" if they have none.
func defaultRootDir(embedded bool) string { return rootDirOf(os.Geteuid(), os.Getenv, embedded) }

func rootDirOf(uid int, getenv func(string) string, embedded bool) string {
	if uid == 0 || uid == -1 { // -1: Windows
		if embedded {
			return "/var/lib/minikubelet"
		}
		return "/var/lib/kubelet"
	}
	// The specification has relative paths ignored.
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "minikubelet")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "minikubelet")
	}
	return ""
}

// AgentRootDir returns the root directory of the agent that a command means: that of the flag --root-dir or, if that is
// empty, the one of [RunningRootDir].
func AgentRootDir(flag string) (string, error) {
	if flag == "" {
		flag = RunningRootDir()
	}
	dir, err := filepath.Abs(flag)
	if err != nil {
		return "", fmt.Errorf("--root-dir %s: %w", flag, err)
	}
	return dir, nil
}

// RunningRootDir returns the default root directory in which an agent has its socket. If
// there is no socket, it is the default for the embedded runtime.
func RunningRootDir() string {
	if dir := defaultRootDir(false); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, SocketName)); err == nil {
			return dir
		}
	}
	return defaultRootDir(true)
}

// defaultPodLogsDir returns kubelet's directory for root on a container runtime, and
// otherwise a directory in the root directory.
func defaultPodLogsDir(uid int, rootDir string, embedded bool) string {
	if !embedded && (uid == 0 || uid == -1) {
		return "/var/log/pods"
	}
	return filepath.Join(rootDir, "logs")
}

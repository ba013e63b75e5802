package main

import (
	"os"
	"path/filepath"
)

// defaultRootDir is kubelet's for root on a runtime of its own, so that an agent
// can take a kubelet's place; with the embedded runtime, which a kubelet may run
// beside, it is another. For others than root it is a directory of the user's own
// state (XDG base directory specification), "" if the user has none.
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

// runningRootDir is the default root directory in which an agent has its socket;
// without one, that of the embedded runtime.
func runningRootDir() string {
	if dir := defaultRootDir(false); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, socketName)); err == nil {
			return dir
		}
	}
	return defaultRootDir(true)
}

// defaultPodLogsDir is kubelet's for root on a runtime of its own, else in the root
// directory.
func defaultPodLogsDir(uid int, rootDir string, embedded bool) string {
	if !embedded && (uid == 0 || uid == -1) {
		return "/var/log/pods"
	}
	return filepath.Join(rootDir, "logs")
}

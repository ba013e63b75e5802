package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// Program is the program whose command line is read.
type Program struct {
	// Name is in messages, and in the default of --root-dir with the embedded runtime. Default "minikubelet".
	Name string
	// Getenv returns a variable of the environment; nil: there is none.
	Getenv func(string) string
	// OwnRuntime means that the program has a container runtime of its own: it is neither behind an endpoint nor the
	// embedded one.
	OwnRuntime bool
	// Configuration is a KubeletConfiguration, or a value with the same JSON: files and flags win over it. nil: none.
	Configuration any
}

// String returns the name of the program.
func (p Program) String() string { return cmp.Or(p.Name, "minikubelet") }

// Env returns a variable of the environment.
func (p Program) Env(name string) string {
	if p.Getenv == nil {
		return ""
	}
	return p.Getenv(name)
}

// defaultRootDir returns kubelet's directory for root on a container runtime, so that an
// agent can take the place of a kubelet. With the embedded runtime, which may run beside
// a kubelet, it is another directory. For other users it is a directory in their state
// directory (XDG base directory specification), or "" if they have none.
func (p Program) defaultRootDir(embedded bool) string { return p.rootDirOf(os.Geteuid(), embedded) }

func (p Program) rootDirOf(uid int, embedded bool) string {
	if uid == 0 || uid == -1 { // -1: Windows
		if embedded {
			return "/var/lib/" + p.String()
		}
		return "/var/lib/kubelet"
	}
	// The specification has relative paths ignored.
	if state := p.Env("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, p.String())
	}
	if home := p.Env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", p.String())
	}
	return ""
}

// AgentRootDir returns the root directory of the agent that a command means: that of the flag --root-dir or, if that is
// empty, the root directory in which an agent runs.
func (p Program) AgentRootDir(flag string) (string, error) {
	if flag == "" {
		flag = p.runningRootDir()
	}
	dir, err := filepath.Abs(flag)
	if err != nil {
		return "", fmt.Errorf("--root-dir %s: %w", flag, err)
	}
	return dir, nil
}

// runningRootDir returns the default root directory in which an agent has its socket. If
// there is no socket, it is the default for the embedded runtime.
func (p Program) runningRootDir() string {
	if dir := p.defaultRootDir(false); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, SocketName)); err == nil {
			return dir
		}
	}
	return p.defaultRootDir(true)
}

// defaultPodLogsDir returns kubelet's directory for root on a container runtime, and
// otherwise a directory in the root directory.
func defaultPodLogsDir(uid int, rootDir string, embedded bool) string {
	if !embedded && (uid == 0 || uid == -1) {
		return "/var/log/pods"
	}
	return filepath.Join(rootDir, "logs")
}

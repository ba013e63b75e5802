package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// kubeletDir is kubelet's root directory by default. Its device plugins and its certificates are there whatever
// --root-dir is: constants of kubelet, and the default of --cert-dir.
const kubeletDir = "/var/lib/kubelet"

// Program is the program whose command line is read.
type Program struct {
	// Name is in messages, and in the default of --root-dir with the embedded runtime. Default "minikubelet".
	Name string
	// Getenv returns a variable of the environment; nil: there is none.
	Getenv func(string) string
	// OwnRuntime means that the program has a container runtime of its own: it is neither behind an endpoint nor the
	// embedded one.
	OwnRuntime bool
	// VolumePlugins means that the program has volume plugins of its own.
	VolumePlugins bool
	// Storage means that the program has volumes of CSI drivers.
	Storage bool
	// Tracing means that the program has a tracer.
	Tracing bool
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
		return kubeletDir
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
// empty, the default one in which an agent runs. If none runs in any, it is that for the container runtime at the
// endpoint of the command or, if that is empty, that for the embedded runtime.
func (p Program) AgentRootDir(flag, endpoint string) (string, error) {
	if flag == "" {
		flag = p.runningRootDir(os.Geteuid(), endpoint, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, SocketName))
			return err == nil
		})
	}
	dir, err := filepath.Abs(flag)
	if err != nil {
		return "", fmt.Errorf("--root-dir %s: %w", flag, err)
	}
	return dir, nil
}

// runningRootDir is AgentRootDir without the flag. runs reports whether an agent has its socket in a directory.
func (p Program) runningRootDir(uid int, endpoint string, runs func(dir string) bool) string {
	dir, embedded := p.rootDirOf(uid, false), p.rootDirOf(uid, true)
	if dir != "" && (runs(dir) || endpoint != "" && !runs(embedded)) {
		return dir
	}
	return embedded
}

// defaultPodLogsDir returns kubelet's directory for root on a container runtime, and
// otherwise a directory in the root directory.
func defaultPodLogsDir(uid int, rootDir string, embedded bool) string {
	if !embedded && (uid == 0 || uid == -1) {
		return "/var/log/pods"
	}
	return filepath.Join(rootDir, "logs")
}

// kubeletPaths fills in the directories that are not below the root directory of a kubelet, and below it for an agent
// that does not stand in a kubelet's place. pluginsGiven means that the directory of device plugins is given.
func (s *Settings) kubeletPaths(uid int, pluginsGiven bool) {
	dir := s.RootDir
	if s.OnMachine() && (uid == 0 || uid == -1) {
		dir = kubeletDir
	}
	if !pluginsGiven {
		s.DevicePluginsDir = filepath.Join(dir, "device-plugins")
		if below := filepath.Join(s.RootDir, "device-plugins"); s.RootDir != "" && below != s.DevicePluginsDir {
			s.EarlierDevicePluginsDir = below
		}
	}
	if s.CertDir != "" || s.RootDir == "" {
		return
	}
	var moved bool
	s.CertDir, moved = certDir(filepath.Join(dir, "pki"), filepath.Join(s.RootDir, "pki"))
	if moved && s.Kubeconfig != "" {
		s.Warnings = append(s.Warnings, fmt.Sprintf("--cert-dir: the certificates stay in %s, where an earlier "+
			"version of the agent has requested them; those of a kubelet are in %s/pki", s.CertDir, dir))
	}
}

// certDir returns the directory of certificates: below is that below the root directory, in which an earlier version of
// the agent has stored them. Where only that has the client certificate of a node, they stay there.
func certDir(dir, below string) (_ string, stays bool) {
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "kubelet-client-current.pem"))
		return err == nil
	}
	if !has(dir) && has(below) {
		return below, true
	}
	return dir, false
}

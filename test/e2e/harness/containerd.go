package harness

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// Containerd says which containerd a cluster has.
type Containerd int

const (
	// Current is the containerd that the module test/tools names; it has an event
	// stream.
	Current Containerd = iota
	// Old is Debian's containerd 1.6, which has none.
	Old
)

// dir returns the directory with the programs of the containerd: itself and its
// shim.
func (k Containerd) dir(t testing.TB) string {
	what, b := "containerd", &current
	if k == Old {
		Need(t, "apt-get", "dpkg-deb")
		what, b = "containerd-1.6", &old
	}
	return b.get(t, what, func() (string, *exec.Cmd) {
		return "", exec.Command("bash", filepath.Join(repoRoot(), "test/tools/build"), what)
	})
}

// config returns the content of the configuration file. It says nothing of the
// registry: containerd speaks plain HTTP to loopback addresses.
func (k Containerd) config(c *Cluster, cniPlugins string) string {
	format := config2
	if k == Old {
		format = config16
	}
	config := fmt.Sprintf(format, c.Dir, c.socket(), c.Registry.Image("pause:1"), cniPlugins)
	if c.runc != "" || c.systemd {
		config += fmt.Sprintf(runcOptions, c.runc, c.systemd)
	}
	if c.oomScore != 0 {
		config = fmt.Sprintf("oom_score = %d\n", c.oomScore) + config
	}
	if c.keep && k == Current {
		config += "[plugins.'io.containerd.cri.v1.images']\n  image_pull_with_sync_fs = true\n"
	}
	if c.mirror {
		config += fmt.Sprintf(mirrorOptions, c.Dir) + fmt.Sprintf(handlerOptions, c.runc, c.systemd)
	}
	return config
}

// builtRunc returns the path of the runc that is built.
func builtRunc(t testing.TB) string {
	Need(t, "apt-get", "dpkg-deb", "cc")
	return filepath.Join(runc.get(t, "runc", func() (string, *exec.Cmd) {
		return "", exec.Command("bash", filepath.Join(repoRoot(), "test/tools/build"), "runc")
	}), "runc")
}

// The configurations. restrict_oom_score_adj: without CAP_SYS_RESOURCE runc cannot
// give a container a lower oom_score_adj than its own.
const (
	config2 = `version = 3
root = '%[1]s/root'
state = '%[1]s/state'
imports = []
disabled_plugins = [
  'io.containerd.internal.v1.opt', 'io.containerd.internal.v1.tracing', 'io.containerd.nri.v1.nri',
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.erofs', 'io.containerd.snapshotter.v1.zfs',
]
[grpc]
  address = '%[2]s'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '%[1]s/s'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '%[3]s'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ['%[1]s/cdi', '/var/run/cdi']
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['%[4]s']
  conf_dir = '%[1]s/cni'
`

	// runcOptions are those of runc; BinaryName is "" for the one of PATH.
	runcOptions = `[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '%s'
  SystemdCgroup = %t
`

	mirrorOptions = `[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '%s/mirrors'
`

	// handlerOptions add the handler of runtime classes that specs of the node tests use.
	handlerOptions = `[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler.options]
  BinaryName = '%s'
  SystemdCgroup = %t
`

	// 1.6 has its shims' sockets in /run/containerd/s, whatever it is told, by names
	// that come from its own address. A shim whose start is cut off, when containerd is
	// killed, leaves its socket there.
	config16 = `version = 2
root = '%[1]s/root'
state = '%[1]s/state'
imports = []
disabled_plugins = [
  'io.containerd.internal.v1.opt', 'io.containerd.internal.v1.restart', 'io.containerd.internal.v1.tracing',
  'io.containerd.snapshotter.v1.aufs', 'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.zfs',
]
[grpc]
  address = '%[2]s'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '%[3]s'
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = '%[4]s'
  conf_dir = '%[1]s/cni'
[plugins.'io.containerd.grpc.v1.cri'.containerd]
  snapshotter = 'overlayfs'
`
)

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Containerd says which containerd a cluster has.
type Containerd int

const (
	// Current is the containerd that the module test/tools names, or, with KUBELETKIT_E2E_CONTAINERD set, as to 1.7,
	// the one of this version. It has an event stream.
	Current Containerd = iota
	// Old is Debian's containerd 1.6, which has none.
	Old
)

// version returns the version of the containerd, such as "1.7", or "" for the one that the module test/tools names.
func (k Containerd) version() string {
	if k == Old {
		return "1.6"
	}
	return os.Getenv("KUBELETKIT_E2E_CONTAINERD")
}

// dir returns the directory with the programs of the containerd: itself and its
// shim.
func (k Containerd) dir(t testing.TB) string {
	tool, version := "containerd", k.version()
	if version != "" {
		tool += "-" + version
	}
	if version == "1.6" {
		Need(t, "apt-get", "dpkg-deb")
	}
	return toolDir(t, tool)
}

// config returns the content of the configuration file. It says nothing of the
// registry: containerd speaks plain HTTP to loopback addresses.
func (k Containerd) config(c *Cluster, cniPlugins string) string {
	format, runtime, images, more := config2, "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", ""
	if k.version() != "" {
		format, runtime, images = config1, "io.containerd.grpc.v1.cri", "io.containerd.grpc.v1.cri"
	}
	if k.version() == "1.7" {
		more = fmt.Sprintf("  enable_cdi = true\n  cdi_spec_dirs = ['%s/cdi', '/var/run/cdi']\n", c.Dir)
	}
	if c.keep && k == Current {
		more += "  image_pull_with_sync_fs = true\n"
	}
	config := fmt.Sprintf(format, c.Dir, c.socket(), c.Registry.Image("pause:1"), cniPlugins, more)
	if c.runc != "" || c.systemd {
		config += fmt.Sprintf(runcOptions, runtime, "runc", c.runc, c.systemd)
	}
	if c.oomScore != 0 {
		config = fmt.Sprintf("oom_score = %d\n", c.oomScore) + config
	}
	if c.mirror {
		config += fmt.Sprintf(mirrorOptions, images, c.Dir)
		config += fmt.Sprintf(runcOptions, runtime, "test-handler", c.runc, c.systemd) // of specs of the node tests
	}
	return config
}

// builtRunc returns the path of the runc that is built.
func builtRunc(t testing.TB) string {
	Need(t, "apt-get", "dpkg-deb", "cc")
	return filepath.Join(toolDir(t, "runc"), "runc")
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
[plugins.'io.containerd.cri.v1.images']
%[5]s[plugins.'io.containerd.cri.v1.images'.pinned_images]
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

	// runcOptions are those of a handler of runc; BinaryName is "" for the one of PATH.
	runcOptions = `[plugins.'%[1]s'.containerd.runtimes.%[2]s]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'%[1]s'.containerd.runtimes.%[2]s.options]
  BinaryName = '%[3]s'
  SystemdCgroup = %[4]t
`

	mirrorOptions = `[plugins.'%s'.registry]
  config_path = '%s/mirrors'
`

	// 1.x has its shims' sockets in /run/containerd/s, whatever it is told, by names
	// that come from its own address. A shim whose start is cut off, when containerd is
	// killed, leaves its socket there.
	config1 = `version = 2
root = '%[1]s/root'
state = '%[1]s/state'
imports = []
disabled_plugins = [
  'io.containerd.internal.v1.opt', 'io.containerd.internal.v1.restart', 'io.containerd.internal.v1.tracing',
  'io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.aufs', 'io.containerd.snapshotter.v1.blockfile',
  'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.zfs',
]
[grpc]
  address = '%[2]s'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '%[3]s'
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
%[5]s[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = '%[4]s'
  conf_dir = '%[1]s/cni'
[plugins.'io.containerd.grpc.v1.cri'.containerd]
  snapshotter = 'overlayfs'
`
)

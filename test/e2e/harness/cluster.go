package harness

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// registryAddr is where the registry of a cluster listens in the cluster's
// network namespace.
const registryAddr = "127.0.0.1:5000"

// Cluster is a containerd with a network namespace, a CNI bridge, an image
// registry and a directory of its own.
type Cluster struct {
	*Client
	Registry *Registry
	Net      *NetNS
	// Dir holds everything of the cluster. Its path is short, because there are
	// sockets in it.
	Dir string

	kind       Containerd
	systemd    bool
	oomScore   int
	mirror     bool
	keep       bool
	bin        string
	runc       string // the path of runc, "" for that of PATH
	containerd *process
	// cgroup is the control group of containerd for CPU time; see account.
	cgroup string
}

// ClusterOptions are what a cluster may be given beside its defaults.
type ClusterOptions struct {
	Containerd Containerd
	// BuiltRunc runs containers by the runc that the module test/tools/runc names, which has user namespaces. Default:
	// Debian's.
	BuiltRunc bool
	// SystemdCgroup lets containerd make cgroups by systemd, which has to run. Only for [Current].
	SystemdCgroup bool
	// OwnDirs are paths that are directories of the cluster, see [Cluster.Own], for containerd and
	// all that is started in the cluster's network namespace.
	OwnDirs []string
	// Propagation of all mounts, if there are OwnDirs. Default: rshared, as on a machine with
	// systemd. If the mounts are private, a kubelet mounts its root directory on itself, over the
	// volumes of an agent before it.
	Propagation string
	// OOMScore is the oom_score_adj of containerd. Less than that of the test needs CAP_SYS_RESOURCE. Only for
	// [Current].
	OOMScore int
	// Mirror takes images of registry.k8s.io from the registry of the cluster, and adds the handler of runtime classes
	// that the node tests use. Only for [Current].
	Mirror bool
	// Dir is the directory of the cluster, which stays. In one that an earlier cluster has left, its
	// containerd continues. Default: a new one, which is removed.
	Dir string
	// Rootless runs everything as [RootlessUser], in a user namespace, with cgroups of its own as the root of
	// all. Only for [Current].
	Rootless bool
	// Down leaves it to the test to start containerd.
	Down bool
}

// NewCluster starts a cluster that ends with the test.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	return NewClusterWith(t, ClusterOptions{})
}

// NewClusterWith makes a cluster that ends with the test.
func NewClusterWith(t testing.TB, options ClusterOptions) *Cluster {
	t.Helper()
	Need(t, "runc", "busybox", "ip", "iptables")
	plugins, bin := cniDir(t), options.Containerd.dir(t)
	dir, err := options.Dir, error(nil)
	if dir == "" {
		if dir, err = os.MkdirTemp("", "kk"); err != nil {
			t.Fatal(err)
		}
	}
	c := &Cluster{
		Dir: dir, kind: options.Containerd, systemd: options.SystemdCgroup, oomScore: options.OOMScore,
		mirror: options.Mirror, bin: bin,
		keep: options.Dir != "" || os.Getenv("KUBELETKIT_E2E_KEEP") == "1",
	}
	if options.BuiltRunc {
		c.runc = builtRunc(t)
		if err := os.Chmod(dir, 0o711); err != nil { // root of a user namespace is an ordinary user
			t.Fatal(err)
		}
	}
	newNet := NewNetNS
	if options.Rootless {
		Need(t, "unshare", "nsenter", "setpriv")
		newNet = func() (*NetNS, error) { return newRootlessNetNS(filepath.Base(c.Dir)) }
		if err := c.rootless(); err != nil {
			t.Fatal(err)
		}
	}
	if c.Net, err = newNet(); err != nil {
		os.RemoveAll(dir)
		Skip(t, "needs network namespaces: %v", err)
	}
	if len(options.OwnDirs) > 0 {
		Need(t, "unshare", "nsenter")
		if err := c.Net.ownDirs(c.Own(""), cmp.Or(options.Propagation, "rshared"), options.OwnDirs); err != nil {
			t.Fatal(err)
		}
	}
	if c.Registry, err = newRegistry(registryAddr); err != nil {
		t.Fatal(err)
	}
	listener, err := c.Net.Listen(registryAddr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: c.Registry}
	go server.Serve(listener)
	if err := c.writeConfig(plugins); err != nil {
		t.Fatal(err)
	}
	if c.Client, err = Dial(c.Endpoint()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's last words:\n%s", tail(c.logPath(), 30))
		}
		c.close(t)
		server.Close()
		c.Net.Close()
	})
	if !options.Down {
		c.Start(t)
	}
	return c
}

// Endpoint is the CRI endpoint, as agents want it.
func (c *Cluster) Endpoint() string { return "unix://" + c.socket() }

// Own is where a path below one of the OwnDirs of the cluster lies for the test.
func (c *Cluster) Own(path string) string { return filepath.Join(c.Dir, "own", path) }

func (c *Cluster) socket() string  { return filepath.Join(c.Dir, "c.sock") }
func (c *Cluster) logPath() string { return filepath.Join(c.Dir, "containerd.log") }

// Start starts containerd, or starts it again over the state that it left, and
// waits until it is ready.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	var err error
	// The shim is looked up beside containerd.
	c.containerd, err = start(c.Net, c.logPath(), []string{"PATH=" + c.bin + ":" + os.Getenv("PATH")},
		filepath.Join(c.bin, "containerd"), "--config", filepath.Join(c.Dir, "containerd.toml"))
	if err != nil {
		t.Fatal(err)
	}
	c.account()
	Eventually(t, time.Minute, "containerd ready", func() error {
		if c.containerd.exited() {
			t.Fatalf("containerd ended: %v\n%s", c.containerd.err, tail(c.logPath(), 20))
		}
		return c.Ready()
	})
}

// LogSize returns the size of containerd's log.
func (c *Cluster) LogSize(t testing.TB) int64 {
	t.Helper()
	info, err := os.Stat(c.logPath())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// LogSince returns the lines of containerd's log behind the offset.
func (c *Cluster) LogSince(t testing.TB, offset int64) []string {
	t.Helper()
	data, err := os.ReadFile(c.logPath())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data[min(offset, int64(len(data))):])), "\n")
}

// Kill kills containerd with SIGKILL; its shims and containers go on.
func (c *Cluster) Kill(t testing.TB) {
	t.Helper()
	if err := c.containerd.stop(syscall.SIGKILL, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// Stop ends containerd with SIGTERM; its shims and containers go on.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	if err := c.containerd.stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Preload pulls images of the registry before a test, so that what it measures
// or times out is not the pull.
func (c *Cluster) Preload(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := c.Pull(c.Registry.Image(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// close removes what the cluster has made, in the orderly way as far as that
// works.
func (c *Cluster) close(t testing.TB) {
	if c.containerd != nil {
		if c.containerd.exited() {
			c.Start(t)
		}
		if err := c.RemoveAll(); err != nil {
			t.Logf("removing the sandboxes that were left: %v", err)
		}
		c.Client.Close()
		if err := c.containerd.stop(syscall.SIGTERM, 20*time.Second); err != nil {
			t.Log(err)
		}
	}
	c.killTasks()
	c.removeCgroups(true)
	if c.cgroup != "" {
		_ = os.Remove(c.cgroup)
	}
	if c.keep {
		t.Logf("kept %s", c.Dir)
		return
	}
	unmountAll(c.Dir)
	if err := os.RemoveAll(c.Dir); err != nil {
		t.Log(err)
	}
}

// writeConfig writes the configuration of containerd and CNI.
func (c *Cluster) writeConfig(plugins string) error {
	network := map[string]any{
		"cniVersion": "1.0.0", "name": "kubeletkit",
		"plugins": []any{
			map[string]any{
				// No masquerading: nothing is reached from the namespace, and
				// an iptables call for each pod would be most of its start.
				"type": "bridge", "bridge": "kk0", "isGateway": true, "hairpinMode": true,
				"ipam": map[string]any{
					"type":    "host-local",
					"ranges":  [][]any{{map[string]string{"subnet": "10.88.0.0/16"}}},
					"routes":  []any{map[string]string{"dst": "0.0.0.0/0"}},
					"dataDir": filepath.Join(c.Dir, "ipam"),
				},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true},
		},
	}
	data, err := json.Marshal(network)
	if err != nil {
		return err
	}
	files := map[string]string{"cni/10-kubeletkit.conflist": string(data), "containerd.toml": c.kind.config(c, plugins)}
	if c.mirror {
		files["mirrors/registry.k8s.io/hosts.toml"] = "[host.'http://" + registryAddr +
			"']\n  capabilities = ['pull', 'resolve']"
	}
	for name, content := range files {
		path := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strings.TrimSpace(content)+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Reboot does to the cluster what a restart of the machine would: every process of
// it is killed, and what lies in memory, below /run, is gone; then containerd is
// started again. The disk stays.
func (c *Cluster) Reboot(t testing.TB) {
	t.Helper()
	c.Kill(t)
	c.killTasks()
	state := filepath.Join(c.Dir, "state")
	unmountAll(state)
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	c.Start(t)
}

// killTasks kills the shims and the processes of all containers.
func (c *Cluster) killTasks() {
	var ids []string
	entries, _ := os.ReadDir(filepath.Join(c.Dir, "state/io.containerd.runtime.v2.task/k8s.io"))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	killTasks(c.socket(), ids)
}

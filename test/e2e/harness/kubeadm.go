package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kubeadmDirs are the directories of a node of kubeadm; a [KubeadmNode] has its own.
var kubeadmDirs = []string{"/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", "/var/log/pods",
	"/var/log/containers"}

// KubeadmNode is a machine that kubeadm makes a cluster of one node of. Its control plane is
// static pods. The agent has the files and flags that kubeadm's unit gives a kubelet.
type KubeadmNode struct {
	*Cluster
	// Plane is the cluster, after Init. The API server is a pod; only what a client does works.
	Plane *ControlPlane

	agent *process
	// bins is in the PATH of kubeadm. It has kubelet and kubectl.
	bins string
}

// NewKubeadmNode makes a machine that ends with the test.
func NewKubeadmNode(t testing.TB) *KubeadmNode {
	t.Helper()
	n := &KubeadmNode{Cluster: NewClusterWith(t, ClusterOptions{OwnDirs: kubeadmDirs}), bins: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last words of kubeadm:\n%s", tail(n.log("kubeadm"), 40))
		}
		if n.agent != nil && !n.agent.exited() {
			n.agent.stop(syscall.SIGKILL, 10*time.Second)
		}
		for _, agent := range []string{"minikubelet", "kubelet"} {
			if t.Failed() {
				t.Logf("last words of %s:\n%s", agent, tail(n.log(agent), 40))
			}
			if agent != "kubelet" {
				assertSound(t, n.log(agent))
			}
		}
	})
	n.AddNodeIP(t)
	if err := n.Net.Do(
		func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.config(), []byte(n.kubeadmConfig()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(KubernetesBinary(t, "kubectl"), filepath.Join(n.bins, "kubectl")); err != nil {
		t.Fatal(err)
	}
	n.addImages(t)
	return n
}

func (n *KubeadmNode) config() string { return filepath.Join(n.Dir, "kubeadm.yaml") }

func (n *KubeadmNode) log(program string) string { return filepath.Join(n.Dir, program+".log") }

// kubeadmConfig returns the configuration of kubeadm. The settings of the kubelet and of
// kube-proxy are what a machine needs that is a container with cgroup v1 and shares its kernel.
// SystemVerification refuses cgroup v1. After an outage of the API server the controller manager can take another
// minute to watch leases again (the back-off of client-go), which is more than its usual grace period of 50 s.
func (n *KubeadmNode) kubeadmConfig() string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {name: %s, criSocket: %q, taints: [], ignorePreflightErrors: [SystemVerification]}
localAPIEndpoint: {advertiseAddress: %s, bindPort: 6443}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
imageRepository: %s
networking: {podSubnet: 10.88.0.0/16, serviceSubnet: 10.96.0.0/16}
controllerManager: {extraArgs: [{name: leader-elect, value: "false"}, {name: node-monitor-grace-period, value: 2m}, {name: flex-volume-plugin-dir, value: /var/lib/kubelet/flexvolumes}]}
scheduler: {extraArgs: [{name: leader-elect, value: "false"}]}
etcd: {local: {extraArgs: [{name: unsafe-no-fsync, value: "true"}]}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 1Mi}
imageGCHighThresholdPercent: 100
oomScoreAdj: 0
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, NodeName, n.Endpoint(), NodeIP, kubernetesVersion(), registryAddr, n.CgroupRoot())
}

// addImages adds what kubeadm pulls to the registry.
func (n *KubeadmNode) addImages(t testing.TB) {
	t.Helper()
	list, err := n.Net.command(KubernetesBinary(t, "kubeadm"), "config", "images", "list",
		"--config", n.config()).Output()
	if err != nil {
		t.Fatalf("images of kubeadm: %v", err)
	}
	for _, image := range strings.Fields(string(list)) {
		image = strings.TrimPrefix(image, registryAddr+"/")
		name, _, _ := strings.Cut(image, ":")
		switch name {
		case "pause":
			n.Registry.tags[image] = n.Registry.tags["pause:1"]
		case "kube-proxy":
			n.Registry.AddProgram(t, image, KubernetesBinary(t, name), iptables(t)...)
		default:
			n.Registry.AddProgram(t, image, KubernetesBinary(t, name))
		}
	}
}

// iptables are the files of iptables and its extensions.
func iptables(t testing.TB) []string {
	var files []string
	for _, pattern := range []string{"/usr/sbin/ip*tables", "/usr/sbin/ip*tables-save", "/usr/sbin/ip*tables-restore",
		"/usr/lib/*/xtables/*.so"} {
		found, _ := filepath.Glob(pattern)
		if len(found) == 0 {
			Skip(t, "needs %s", pattern)
		}
		files = append(files, found...)
	}
	return files
}

// Init runs kubeadm init, with the agent in the kubelet's place.
func (n *KubeadmNode) Init(t testing.TB, agent string) {
	t.Helper()
	if err := os.Symlink(agent, filepath.Join(n.bins, "kubelet")); err != nil {
		t.Fatal(err)
	}
	n.MakeCgroup(t) // a kubelet does not start without it
	kubeadm, err := start(n.Net, n.log("kubeadm"), []string{"PATH=" + n.bins + ":" + os.Getenv("PATH")},
		KubernetesBinary(t, "kubeadm"), "init", "--config", n.config(), "-v", "1")
	if err != nil {
		t.Fatal(err)
	}
	defer kubeadm.stop(syscall.SIGKILL, 10*time.Second)
	done := func() error {
		if kubeadm.exited() && kubeadm.err != nil {
			t.Fatalf("kubeadm init: %v", kubeadm.err)
		}
		return nil
	}
	Eventually(t, time.Minute, "files for the kubelet", func() error {
		done()
		_, err := os.Stat(n.Own("/var/lib/kubelet/config.yaml"))
		return err
	})
	n.StartAgent(t, agent)
	Eventually(t, 3*time.Minute, "end of kubeadm init", func() error {
		done()
		if n.agent.exited() {
			t.Fatalf("the agent has ended: %v", n.agent.err)
		}
		if !kubeadm.exited() {
			return errors.New("it runs")
		}
		return nil
	})
	n.Plane = OpenControlPlane(t, n.Net, n.Own("/etc/kubernetes/admin.conf"))
}

// StartAgent starts the agent with the flags that kubeadm's unit gives a kubelet, and waits until
// it is healthy.
func (n *KubeadmNode) StartAgent(t testing.TB, agent string) {
	t.Helper()
	env, err := os.ReadFile(n.Own("/var/lib/kubelet/kubeadm-flags.env"))
	if err != nil {
		t.Fatal(err)
	}
	_, flags, _ := strings.Cut(strings.TrimSpace(string(env)), "=")
	args := append([]string{
		"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--config=/var/lib/kubelet/config.yaml", "-v=3",
	}, strings.Fields(strings.Trim(flags, `"`))...)
	if n.agent, err = start(n.Net, n.log(filepath.Base(agent)), nil, agent, args...); err != nil {
		t.Fatal(err)
	}
	client := http.Client{
		Transport: &http.Transport{DialContext: n.Net.DialContext, DisableKeepAlives: true},
		Timeout:   5 * time.Second,
	}
	Eventually(t, time.Minute, "agent healthy", func() error {
		if n.agent.exited() {
			t.Fatalf("the agent has ended: %v\n%s", n.agent.err, tail(n.log(filepath.Base(agent)), 20))
		}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
			"http://127.0.0.1:10248/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// StopAgent ends the agent with SIGTERM.
func (n *KubeadmNode) StopAgent(t testing.TB) {
	t.Helper()
	if err := n.agent.stop(syscall.SIGTERM, 20*time.Second); err != nil {
		t.Fatal(err)
	}
}

// kubernetesVersion is the version of the module test/tools/kubelet.
func kubernetesVersion() string {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = filepath.Join(repoRoot(), "test/tools/kubelet")
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// NodeName is the name of an agent's node, unless its options have another.
const NodeName = "node"

// agentPorts gives each agent its read-only port, so that two agents of one
// cluster, one after the other, cannot be mistaken for each other.
var agentPorts atomic.Int32

// kubeletConfig has the further settings of a kubelet that runs without an API server and
// does not change the host.
var kubeletConfig = map[string]any{
	"authentication": map[string]any{"anonymous": map[string]any{"enabled": true},
		"webhook": map[string]any{"enabled": false}},
	"authorization": map[string]any{"mode": "AlwaysAllow"},
	"cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "cgroupDriver": "cgroupfs",
	"makeIPTablesUtilChains": false, "localStorageCapacityIsolation": false,
}

// DevicePluginsDirFlag is the flag of minikubelet for the directory of device plugins.
const DevicePluginsDirFlag = "--device-plugins-dir"

// AgentOptions are what an agent may be given beside its defaults.
type AgentOptions struct {
	// Binary of the agent. Default: minikubelet.
	Binary string
	// Current says that Binary is a minikubelet with [DevicePluginsDirFlag], as the default is.
	Current bool
	// Dir holds the root directory, the manifests and the pod logs. Give an agent
	// the directory of another to continue its work. Default: a new one.
	Dir string
	// Config is laid over the KubeletConfiguration of the harness.
	Config map[string]any
	// ConfigFile has the configuration, for tests that change it. The harness writes it unless it is
	// there. Default: a file in Dir, which is written at each start.
	ConfigFile string
	// Args are further flags.
	Args []string
	// KubeletDirs leaves device plugins and certificates where a kubelet has them, in /var/lib/kubelet. It is for a
	// cluster with a directory of its own there, see ClusterOptions.OwnDirs. Otherwise they are below Root; the
	// device plugins only those of an agent that is Current.
	KubeletDirs bool
	// NodeName is the name of the node. Default: [NodeName].
	NodeName string
	// Kubeconfig makes the agent a node of a [ControlPlane].
	Kubeconfig string
	// Net is the network namespace of the agent. Default: that of its cluster, or a new one.
	Net *NetNS
	// Endpoint is the CRI endpoint. Default: that of its cluster.
	Endpoint string
	// Env are further variables of its environment.
	Env []string
	// UID is the user that the agent runs as, with the group of the same number and no other group.
	// Default: that of the test.
	UID uint32
}

// Agent is a node agent on a cluster, or one whose containers are processes of the
// host, see [NewProcessAgent].
type Agent struct {
	// Root is the agent's root directory, Manifests the directory of its pods,
	// Logs that of the container logs.
	Root, Manifests, Logs string
	// Runtime looks at the agent's containers, behind its back.
	Runtime *Client

	net *NetNS
	// endpoint is "" if the agent has a runtime of its own.
	endpoint string
	options  AgentOptions
	config   map[string]any
	url      string
	client   http.Client
	process  *process
}

// StartAgent starts an agent that ends with the test, its pods with it.
func (c *Cluster) StartAgent(t testing.TB, options AgentOptions) *Agent {
	t.Helper()
	a := c.NewAgent(t, options)
	a.Start(t)
	a.WaitHealthy(t)
	return a
}

// NewAgent makes an agent that is not started yet.
func (c *Cluster) NewAgent(t testing.TB, options AgentOptions) *Agent {
	t.Helper()
	if options.Dir == "" {
		options.Dir = filepath.Join(c.Dir, "agent")
	}
	// Agents of other clusters run at the same time.
	options.Config = maps.Clone(options.Config)
	if options.Config == nil {
		options.Config = map[string]any{}
	}
	if options.Config["cgroupRoot"] == nil {
		options.Config["cgroupRoot"] = c.CgroupRoot()
	}
	if options.Net == nil {
		options.Net = c.Net
	}
	if options.Endpoint == "" {
		options.Endpoint = c.Endpoint()
	}
	return newAgent(t, c.Client, options.Net, options.Endpoint, options)
}

func newAgent(t testing.TB, runtime *Client, net *NetNS, endpoint string, options AgentOptions) *Agent {
	t.Helper()
	if options.Binary == "" {
		options.Current = true
		options.Binary = MinikubeletBinary(t)
	}
	if options.NodeName == "" {
		options.NodeName = NodeName
	}
	port := 10300 + agentPorts.Add(1)
	a := &Agent{
		Root: filepath.Join(options.Dir, "root"), Manifests: filepath.Join(options.Dir, "manifests"),
		Logs: filepath.Join(options.Dir, "logs"), Runtime: runtime, net: net, endpoint: endpoint, options: options,
		url: fmt.Sprintf("http://127.0.0.1:%d", port),
		client: http.Client{
			// To compress what is looked at would disturb what is measured.
			Transport: &http.Transport{DialContext: net.DialContext, DisableCompression: true},
			Timeout:   10 * time.Second,
		},
	}
	for _, dir := range []string{a.Root, a.Manifests, a.Logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	owner := int(options.UID)
	if net.keeper != nil {
		if err := a.options.ownProgram(); err != nil {
			t.Fatal(err)
		}
		owner = RootlessUser
	}
	if owner != 0 {
		for _, dir := range []string{options.Dir, a.Root, a.Logs} {
			if err := os.Chown(dir, owner, owner); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.config = map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "127.0.0.1", "readOnlyPort": port, "enableServer": false, "healthzPort": 0,
		"podLogsDir": a.Logs, "resolvConf": "/etc/resolv.conf",
		// Tests run on any machine, also on one whose disk is nearly full.
		"failCgroupV1": false, "failSwapOn": false, "oomScoreAdj": 0,
		"evictionHard": map[string]string{"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
		// Back-off that the tests can wait for; 1 s is the least that is allowed.
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "1s"},
	}
	if filepath.Base(options.Binary) == "kubelet" {
		maps.Copy(a.config, kubeletConfig)
	}
	if options.Kubeconfig != "" {
		// The API server connects to the address of the node.
		maps.Copy(a.config, map[string]any{
			"enableServer": true, "address": "0.0.0.0", "port": port + 1000,
			"authentication": nil, "authorization": nil,
		})
		if ca := filepath.Join(filepath.Dir(options.Kubeconfig), "ca.crt"); exists(ca) {
			a.config["authentication"] = map[string]any{"x509": map[string]string{"clientCAFile": ca}}
		}
	}
	maps.Copy(a.config, options.Config)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent's last words:\n%s", tail(a.LogPath(), 60))
		}
		if a.process != nil && !a.process.exited() {
			a.process.stop(syscall.SIGKILL, 10*time.Second)
		}
		assertSound(t, a.LogPath())
		a.client.CloseIdleConnections()
	})
	return a
}

// assertSound asserts that an agent with the log has no data race and has not panicked. One that
// was started again must not get away with it.
func assertSound(t testing.TB, path string) {
	t.Helper()
	log, _ := os.ReadFile(path)
	for _, bad := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			t.Errorf("the agent's log:\n%s", log[i:min(len(log), i+6000)])
		}
	}
}

// APIURL is the address of the agent's port for the API server, which there is with a Kubeconfig.
func (a *Agent) APIURL() string { return fmt.Sprintf("https://%s:%d", NodeIP, a.config["port"]) }

// DialContext connects to a port of the agent, in its network namespace.
func (a *Agent) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return a.net.DialContext(ctx, network, addr)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// LogPath is the file with the agent's output.
func (a *Agent) LogPath() string { return filepath.Join(a.options.Dir, "agent.log") }

// Start starts the agent's process, again if need be.
func (a *Agent) Start(t testing.TB) {
	t.Helper()
	if err := a.start(); err != nil {
		t.Fatal(err)
	}
}

func (a *Agent) start() (err error) {
	config := a.options.ConfigFile
	if config == "" || !exists(config) {
		data, err := yaml.Marshal(a.config)
		if err != nil {
			return err
		}
		if config == "" {
			// Agents that share a directory have configurations of their own.
			config = filepath.Join(a.options.Dir, "config-"+filepath.Base(a.options.Binary)+".yaml")
		}
		if err := os.WriteFile(config, data, 0o644); err != nil {
			return err
		}
	}
	args := []string{
		"--config", config, "--root-dir", a.Root, "--pod-manifest-path", a.Manifests,
		"--hostname-override", a.options.NodeName, "-v", "4",
		"--container-runtime-endpoint", cmp.Or(a.endpoint, "embedded"),
	}
	if !a.options.KubeletDirs {
		if a.options.Kubeconfig != "" {
			args = append(args, "--cert-dir", filepath.Join(a.Root, "pki"))
		}
		if a.options.Current {
			args = append(args, DevicePluginsDirFlag, filepath.Join(a.Root, "device-plugins"))
		}
	}
	if a.options.Kubeconfig != "" {
		args = append(args, "--kubeconfig", a.options.Kubeconfig)
	}
	args = append(args, a.options.Args...)
	a.process, err = startAs(a.options.UID, a.net, a.LogPath(), a.options.Env, a.options.Binary, args...)
	return err
}

// WaitHealthy waits until the agent reports that it is healthy.
func (a *Agent) WaitHealthy(t testing.TB) {
	t.Helper()
	Eventually(t, time.Minute, "agent healthy", func() error {
		if a.process.exited() {
			t.Fatalf("the agent ended: %v\n%s", a.process.err, tail(a.LogPath(), 20))
		}
		if _, err := a.get("/healthz"); err != nil || a.endpoint != "" {
			return err
		}
		return a.Runtime.Ready()
	})
}

// Stop ends the agent with SIGTERM, and returns how long that took.
func (a *Agent) Stop(t testing.TB) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := a.process.stop(syscall.SIGTERM, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

// Kill ends the agent with SIGKILL.
func (a *Agent) Kill(t testing.TB) {
	t.Helper()
	if err := a.process.stop(syscall.SIGKILL, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// PID is the ID of the agent's process.
func (a *Agent) PID() int { return a.process.cmd.Process.Pid }

// Exited reports whether the agent's process has ended.
func (a *Agent) Exited() bool { return a.process.exited() }

// Put writes the pod's manifest, in one step, to the file of the pod's name.
func (a *Agent) Put(t testing.TB, pods ...*v1.Pod) {
	t.Helper()
	a.Stage(t, pods...)()
}

// Stage writes the manifests of the pods beside the agent's directory; drop puts them
// into it.
func (a *Agent) Stage(t testing.TB, pods ...*v1.Pod) (drop func()) {
	t.Helper()
	names := make([]string, len(pods))
	for i, pod := range pods {
		data, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		names[i] = pod.Name + ".yaml"
		if err := os.WriteFile(a.staged(names[i]), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		for _, name := range names {
			a.place(t, name)
		}
	}
}

// PutFile writes a manifest file in one step.
func (a *Agent) PutFile(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(a.staged(name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	a.place(t, name)
}

func (a *Agent) staged(name string) string { return filepath.Join(a.options.Dir, "new-"+name) }

func (a *Agent) place(t testing.TB, name string) {
	t.Helper()
	if err := os.Rename(a.staged(name), filepath.Join(a.Manifests, name)); err != nil {
		t.Fatal(err)
	}
}

// Remove removes the manifests of the pods.
func (a *Agent) Remove(t testing.TB, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := os.Remove(filepath.Join(a.Manifests, pod.Name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
}

// FullName is the name that a static pod has on the node.
func FullName(pod *v1.Pod) string { return pod.Name + "-" + NodeName }

// Pods returns the pods that the agent reports.
func (a *Agent) Pods() (*v1.PodList, error) {
	body, err := a.get("/pods")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("/pods: %w", err)
	}
	return &list, nil
}

// RunningContainers returns the number of running containers in the agent's metrics, without
// sandboxes.
func (a *Agent) RunningContainers() (int, error) {
	const name = `kubelet_running_containers{container_state="running"} `
	body, err := a.get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, nil // a gauge that was never set
}

// errNoPod means that the agent does not report the pod.
var errNoPod = errors.New("the agent does not report the pod")

// Pod returns what the agent reports of the pod.
func (a *Agent) Pod(pod *v1.Pod) (*v1.Pod, error) {
	list, err := a.Pods()
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == FullName(pod) {
			return &list.Items[i], nil
		}
	}
	return nil, errNoPod
}

// Await waits until what the agent reports of the pod fulfils the conditions,
// and returns it.
func (a *Agent) Await(t testing.TB, pod *v1.Pod, timeout time.Duration, conditions ...Condition) *v1.Pod {
	t.Helper()
	var got *v1.Pod
	err := poll(timeout, func() (err error) {
		if got, err = a.Pod(pod); err != nil {
			return err
		}
		for _, condition := range conditions {
			if err := condition(got); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		var status []byte
		if got != nil {
			status, _ = yaml.Marshal(got.Status)
		}
		t.Fatalf("pod %s: not within %v: %v\n%s", FullName(pod), timeout, err, status)
	}
	return got
}

// AwaitGone waits until nothing is left of the pods.
func (a *Agent) AwaitGone(t testing.TB, timeout time.Duration, pods ...*v1.Pod) {
	t.Helper()
	Eventually(t, timeout, "everything of the pods gone", func() error { return a.Left(t, pods...) })
}

// Left returns what is left of the pods, in the agent's report or in the runtime; nil if
// there is nothing. Their logs stay for a minute.
func (a *Agent) Left(t testing.TB, pods ...*v1.Pod) error {
	t.Helper()
	names := map[string]bool{}
	for _, pod := range pods {
		names[FullName(pod)] = true
	}
	list, err := a.Pods()
	if err != nil {
		return err
	}
	for i := range list.Items {
		if names[list.Items[i].Name] {
			return fmt.Errorf("the agent reports %s", list.Items[i].Name)
		}
	}
	for _, s := range a.Runtime.Sandboxes(t, "") {
		if names[s.Labels[labelPodName]] {
			return fmt.Errorf("sandbox of %s, state %v", s.Labels[labelPodName], s.State)
		}
	}
	for _, ctr := range a.Runtime.Containers(t, "") {
		if names[ctr.Labels[labelPodName]] {
			return fmt.Errorf("container %s of %s, state %v", ctr.Metadata.Name, ctr.Labels[labelPodName], ctr.State)
		}
	}
	return nil
}

// AwaitNoPodDirs waits until the agent's root has no pod directory left but for
// the pods that it reports.
func (a *Agent) AwaitNoPodDirs(t testing.TB, timeout time.Duration) {
	t.Helper()
	Eventually(t, timeout, "directories of gone pods removed", func() error {
		list, err := a.Pods()
		if err != nil {
			return err
		}
		known := map[string]bool{}
		for i := range list.Items {
			known[string(list.Items[i].UID)] = true
			known[list.Items[i].Annotations["kubernetes.io/config.hash"]] = true
		}
		entries, err := os.ReadDir(filepath.Join(a.Root, "pods"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		for _, e := range entries {
			if !known[e.Name()] {
				return fmt.Errorf("%s is left", e.Name())
			}
		}
		return nil
	})
}

// Get returns what the agent's read-only port answers.
func (a *Agent) Get(path string) ([]byte, error) { return a.get(path) }

func (a *Agent) get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, err
}

// HideManifests takes the directory of manifests out of the agent's sight, as when
// what it lies on is not mounted; ShowManifests brings it back.
func (a *Agent) HideManifests(t testing.TB) {
	t.Helper()
	if err := os.Rename(a.Manifests, a.Manifests+".hidden"); err != nil {
		t.Fatal(err)
	}
}

// ShowManifests brings the directory of manifests back.
func (a *Agent) ShowManifests(t testing.TB) {
	t.Helper()
	if err := os.Rename(a.Manifests+".hidden", a.Manifests); err != nil {
		t.Fatal(err)
	}
}

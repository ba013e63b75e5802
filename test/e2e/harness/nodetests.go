package harness

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// NodeTests are the node tests of Kubernetes, with an API server of their own, for an agent of a
// cluster in whose network namespace they are.
type NodeTests struct {
	// Kubeconfig is what the agent connects to their API server with.
	Kubeconfig string

	c    *Cluster
	bin  string
	env  []string
	args []string
}

// NodeTestsOptions are what the node tests may be given.
type NodeTestsOptions struct {
	// Focus are texts: the specs that have one of them in their names run.
	Focus []string
	// Skip are texts of specs that do not run.
	Skip []string
	// Env are further variables of their environment.
	Env []string
}

// nodeTestsConfig lets the agent in.
const nodeTestsConfig = `apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: e2e, user: {token: ` + apiServerToken + `}}]
contexts: [{name: e2e, context: {cluster: e2e, user: e2e}}]
current-context: e2e
`

// systemSpec requires nothing of the machine. By default the node tests do not begin without the
// configuration of the kernel, which is not on each machine.
const systemSpec = "os: Linux\nkernelSpec: {versions: ['.*']}\n"

// The programs by which specs find, stop and start the service of a kubelet, and change as root what
// only root may change, in the place of systemd's and of sudo. [NodeTests.Control] serves the requests.
const (
	sudoScript      = "#!/bin/sh\nexec \"$@\"\n"
	systemctlScript = `#!/bin/sh
case $1 in
list-units) echo "kubelet-agent.service loaded active running"; exit ;;
reset-failed) exit ;;
kill | restart) ;;
*) exec /usr/bin/systemctl "$@" ;;
esac
echo "$1" >%[1]s/request
read -r answer <%[1]s/answer
echo "$answer"
[ "$answer" = done ]
`
)

// StartNodeTests starts the API server of the specs, and waits until it answers.
func (c *Cluster) StartNodeTests(t testing.TB, options NodeTestsOptions) *NodeTests {
	t.Helper()
	n := &NodeTests{c: c, Kubeconfig: filepath.Join(c.Dir, "nodetests.kubeconfig")}
	repos, system := filepath.Join(c.Dir, "repos.yaml"), filepath.Join(c.Dir, "system.yaml")
	if err := os.MkdirAll(n.dir("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		n.Kubeconfig:           nodeTestsConfig,
		repos:                  "promoterE2eRegistry: " + registryAddr + "\ngcRegistry: " + registryAddr + "\n",
		system:                 systemSpec,
		n.dir("bin/sudo"):      sudoScript,
		n.dir("bin/systemctl"): fmt.Sprintf(systemctlScript, n.dir("")),
	} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"request", "answer"} {
		if err := unix.Mkfifo(n.dir(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.bin = KubernetesBinary(t, "e2e_node.test")
	n.env = append(slices.Clone(options.Env), "KUBE_TEST_REPO_LIST="+repos, "PATH="+n.dir("bin")+":"+os.Getenv("PATH"))
	list := c.Net.command(n.bin, "--list-images")
	list.Env = append(os.Environ(), n.env...)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("images of the node tests: %v", err)
	}
	if err := c.Registry.addStandIns(strings.Fields(string(out))); err != nil {
		t.Fatal(err)
	}
	c.Registry.AddProgram(t, devicePluginImage, KubernetesBinary(t, "sample-device-plugin"))
	n.args = []string{
		"--start-services=false", "--prepull-images=false", "--node-name=" + NodeName, "--system-spec-file=" + system,
		"--container-runtime-endpoint=" + c.Endpoint(), "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.focus=" +
			strings.Join(options.Focus, "|"),
	}
	if len(options.Skip) > 0 {
		n.args = append(n.args, "--ginkgo.skip="+strings.Join(options.Skip, "|"))
	}
	n.start(t, filepath.Join(c.Dir, "nodetests-services.log"), "--run-services-mode")
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: c.Net.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout: time.Minute, DisableKeepAlives: true,
	}}
	Eventually(t, 5*time.Minute, "API server of the node tests ready", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:6443/readyz", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+apiServerToken)
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
	return n
}

// start starts the program of the tests, which writes into its directory, until the test ends.
func (n *NodeTests) start(t testing.TB, log string, args ...string) *process {
	t.Helper()
	p, err := start(n.c.Net, log, n.env,
		"env", append([]string{"--chdir=" + n.dir(""), n.bin, "--bearer-token=" + apiServerToken}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop(syscall.SIGKILL, 10*time.Second) })
	return p
}

func (n *NodeTests) dir(name string) string { return filepath.Join(n.c.Dir, "nodetests", name) }

// ConfigFile is the file in which specs write other settings for the agent; see [AgentOptions].
func (n *NodeTests) ConfigFile() string { return n.dir("kubelet-config") }

// Control lets the specs stop and start the agent until the test ends.
func (n *NodeTests) Control(t testing.TB, agent *Agent) {
	t.Helper()
	// Open for both, so that neither end waits for the other one.
	requests, err := os.OpenFile(n.dir("request"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := os.OpenFile(n.dir("answer"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 100)
		for {
			length, err := requests.Read(buffer)
			if err != nil {
				return
			}
			answer := "done"
			if err := agent.process.stop(syscall.SIGTERM, 20*time.Second); err != nil {
				answer = err.Error()
			} else if strings.TrimSpace(string(buffer[:length])) == "restart" {
				if err := agent.start(); err != nil {
					answer = err.Error()
				}
			}
			if _, err := answers.WriteString(answer + "\n"); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		requests.Close()
		<-ended
		answers.Close()
	})
}

// LogPath is the file with the output of the node tests.
func (n *NodeTests) LogPath() string { return filepath.Join(n.c.Dir, "nodetests.log") }

// Run runs the specs, when the agent is started, and returns what they have written.
func (n *NodeTests) Run(t testing.TB, timeout time.Duration) string {
	t.Helper()
	process := n.start(t, n.LogPath(), n.args...)
	select {
	case <-process.done:
	case <-time.After(timeout):
		t.Errorf("the node tests did not end within %v", timeout)
	}
	out, err := os.ReadFile(n.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// mirroredImage is one that specs name with the registry registry.k8s.io; see [ClusterOptions].
const mirroredImage = "e2e-test-images/busybox:1.36.1-1"

// devicePluginImage is the device plugin of specs, which manifests in the node tests name with the registry
// registry.k8s.io.
const devicePluginImage = "e2e-test-images/sample-device-plugin:1.8.0"

// guardedImage is one that specs pull with credentials, from a registry of the port of ours. They start it as a pod, of
// which the stand-in does nothing.
const guardedImage = "pause:testing"

// registryScript waits as agnhost does as "fake-registry-server", and ends at once.
const registryScript = `if [ "$1" = fake-registry-server ]; then
	` + Forever + `
fi
`

// stressScript does what agnhost does as "stress --mem-alloc-size 12Mi --mem-alloc-sleep 10s --mem-total BYTES".
const stressScript = `if [ "$1" = stress ]; then
	trap 'exit 0' TERM
	i=0
	while [ $i -lt $(($7 / 12582912)) ]; do
		i=$((i+1))
		{ head -c 12582912 /dev/zero; sleep 2147483647; } | dd of=/dev/null bs=25165824 iflag=fullblock 2>/dev/null &
		sleep "$5" & wait $!
	done
fi
`

// addStandIns adds images of busybox for those of the images that the node tests run as servers
// or with a shell. Those of which specs look for the process run a sleep by their names.
func (r *Registry) addStandIns(images []string) error {
	data, err := layer()
	if err != nil {
		return err
	}
	// The right to an image belongs to its ID, which is therefore not that of another image.
	r.add(guardedImage, data, imageConfig{Env: []string{"PATH=/bin", "GUARDED=1"},
		Cmd: []string{"/bin/sh", "-c", Forever}})
	for _, image := range append(images, registryAddr+"/"+mirroredImage) {
		image, ok := strings.CutPrefix(image, registryAddr+"/")
		config := imageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh", "-c", Forever}}
		switch name, _, _ := strings.Cut(image, ":"); {
		case !ok:
			continue
		case name == "busybox" || image == mirroredImage:
		case name == "agnhost" || name == "nginx" || name == "pause":
			// busybox does what its name says behind the last slash.
			config.Entrypoint, config.Cmd = []string{"/bin/sh", "-c", registryScript + stressScript + `exec -a "` +
				name + ` /sleep" /bin/busybox 2147483647`, name}, nil
		default:
			continue
		}
		r.add(image, data, config)
	}
	return nil
}

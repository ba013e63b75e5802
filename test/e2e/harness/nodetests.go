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
	// Procs is the number of specs that run at the same time, for specs that are not Serial. Default: 1.
	Procs int
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
	if err := c.Registry.addStandIns(strings.Fields(string(out)), KubernetesBinary(t, "agnhost")); err != nil {
		t.Fatal(err)
	}
	c.Registry.AddProgram(t, devicePluginImage, KubernetesBinary(t, "sample-device-plugin"))
	args := []string{
		"--bearer-token=" + apiServerToken, "--start-services=false", "--prepull-images=false",
		"--node-name=" + NodeName, "--system-spec-file=" + system, "--container-runtime-endpoint=" + c.Endpoint(),
	}
	flags := []string{"v", "no-color", "timeout=24h", "json-report=" + n.ReportPath(),
		"focus=" + strings.Join(options.Focus, "|")}
	if len(options.Skip) > 0 {
		flags = append(flags, "skip="+strings.Join(options.Skip, "|"))
	}
	if options.Procs > 1 {
		// ginkgo starts the processes in the directory of the program.
		program := n.dir("e2e_node.test")
		if err := os.Symlink(n.bin, program); err != nil {
			t.Fatal(err)
		}
		n.args = []string{KubernetesBinary(t, "ginkgo"), fmt.Sprintf("--procs=%d", options.Procs)}
		for _, flag := range flags {
			n.args = append(n.args, "--"+flag)
		}
		n.args = append(append(n.args, program, "--"), args...)
	} else {
		n.args = append([]string{n.bin}, args...)
		for _, flag := range flags {
			n.args = append(n.args, "--ginkgo."+flag)
		}
	}
	n.start(t, filepath.Join(c.Dir, "nodetests-services.log"), n.bin, "--bearer-token="+apiServerToken,
		"--run-services-mode")
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

// start starts a program of the tests, which writes into its directory, until the test ends.
func (n *NodeTests) start(t testing.TB, log string, args ...string) *process {
	t.Helper()
	p, err := start(n.c.Net, log, n.env,
		"env", append([]string{"--chdir=" + n.dir("")}, args...)...)
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

// ReportPath is the file with ginkgo's report of the specs, as JSON.
func (n *NodeTests) ReportPath() string { return filepath.Join(n.c.Dir, "nodetests.json") }

// Run runs the specs, when the agent is started, and returns what they have written.
func (n *NodeTests) Run(t testing.TB, timeout time.Duration) string {
	t.Helper()
	process := n.start(t, n.LogPath(), n.args...)
	limit, tick := time.NewTimer(timeout), time.NewTicker(10*time.Second)
	defer limit.Stop()
	defer tick.Stop()
	shown := 0
	for ended := false; !ended; {
		select {
		case <-process.done:
			ended = true
		case <-limit.C:
			t.Errorf("the node tests did not end within %v", timeout)
			ended = true
		case <-tick.C:
			shown = n.show(t, shown)
		}
	}
	n.show(t, shown)
	out, err := os.ReadFile(n.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// show prints the lines of the specs that have ended, from an offset in the log on, and returns the next one. What a
// guest has printed is known also if it does not end.
func (n *NodeTests) show(t testing.TB, offset int) int {
	t.Helper()
	out, err := os.ReadFile(n.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out[offset:])) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		offset += len(line)
		for _, prefix := range []string{"•", "S [SKIPPED]", "[FAILED]", "[sig-"} {
			if strings.HasPrefix(line, prefix) {
				fmt.Print(line)
			}
		}
	}
	return offset
}

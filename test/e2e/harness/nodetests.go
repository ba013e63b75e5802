package harness

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NodeTests are the node tests of Kubernetes, with an API server of their own, for an agent of a
// cluster in whose network namespace they are.
type NodeTests struct {
	// Kubeconfig is what the agent connects to their API server with.
	Kubeconfig string

	c       *Cluster
	process *process
}

// nodeTestsConfig lets the agent in.
const nodeTestsConfig = `apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: e2e, user: {token: ` + apiServerToken + `}}]
contexts: [{name: e2e, context: {cluster: e2e, user: e2e}}]
current-context: e2e
`

// StartNodeTests starts the specs that have one of the texts in their names. They wait for the agent.
func (c *Cluster) StartNodeTests(t testing.TB, specs ...string) *NodeTests {
	t.Helper()
	n := &NodeTests{c: c, Kubeconfig: filepath.Join(c.Dir, "nodetests.kubeconfig")}
	repos := filepath.Join(c.Dir, "repos.yaml")
	for path, content := range map[string]string{
		n.Kubeconfig: nodeTestsConfig,
		repos:        "promoterE2eRegistry: " + registryAddr + "\ngcRegistry: " + registryAddr + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin, env := KubernetesBinary(t, "e2e_node.test"), []string{"KUBE_TEST_REPO_LIST=" + repos}
	list := c.Net.command(bin, "--list-images")
	list.Env = append(os.Environ(), env...)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("images of the node tests: %v", err)
	}
	if err := c.Registry.addStandIns(strings.Fields(string(out))); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(c.Dir, "nodetests")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(log string, args ...string) *process {
		// They write into their directory.
		args = append([]string{"--chdir=" + work, bin, "--bearer-token=" + apiServerToken}, args...)
		p, err := start(c.Net, log, env, "env", args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.stop(syscall.SIGKILL, 10*time.Second) })
		return p
	}
	run(filepath.Join(c.Dir, "nodetests-services.log"), "--run-services-mode")
	n.process = run(n.LogPath(), "--start-services=false", "--prepull-images=false", "--node-name="+NodeName,
		"--container-runtime-endpoint="+c.Endpoint(), "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.focus="+strings.Join(specs, "|"))
	return n
}

// LogPath is the file with the output of the node tests.
func (n *NodeTests) LogPath() string { return filepath.Join(n.c.Dir, "nodetests.log") }

// Wait waits for the end of the specs, and returns what they have written.
func (n *NodeTests) Wait(t testing.TB, timeout time.Duration) string {
	t.Helper()
	select {
	case <-n.process.done:
	case <-time.After(timeout):
		t.Errorf("the node tests did not end within %v", timeout)
	}
	out, err := os.ReadFile(n.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// addStandIns adds images of busybox for those of the images that the node tests run as servers
// or with a shell.
func (r *Registry) addStandIns(images []string) error {
	data, err := layer()
	if err != nil {
		return err
	}
	for _, image := range images {
		image, ok := strings.CutPrefix(image, registryAddr+"/")
		switch name, _, _ := strings.Cut(image, ":"); {
		case ok && (name == "busybox" || name == "nginx" || name == "pause"):
			r.add(image, data, imageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh", "-c", Forever}})
		}
	}
	return nil
}

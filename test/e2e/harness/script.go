package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Script is a program in the network namespace of a cluster, with all that it starts.
type Script struct {
	process *process
	log     string
}

// RunScript starts a script of the repository that ends with the test, with minikubelet and
// kubectl in its PATH.
func (c *Cluster) RunScript(t testing.TB, env []string, path string, args ...string) *Script {
	t.Helper()
	bins := t.TempDir()
	for name, bin := range map[string]string{"minikubelet": MinikubeletBinary(t),
		"kubectl": KubernetesBinary(t, "kubectl")} {
		if err := os.Symlink(bin, filepath.Join(bins, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := &Script{log: filepath.Join(c.Dir, "script.log")}
	var err error
	if s.process, err = start(c.Net, s.log, append(env, "PATH="+bins+":"+os.Getenv("PATH")),
		filepath.Join(repoRoot(), path), args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the script's last words:\n%s", tail(s.log, 40))
		}
		s.Kill(t)
	})
	return s
}

// Kill kills the script and what it has started.
func (s *Script) Kill(t testing.TB) {
	t.Helper()
	syscall.Kill(-s.process.cmd.Process.Pid, syscall.SIGKILL)
	if err := s.process.stop(syscall.SIGKILL, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// Exited reports whether the script has ended.
func (s *Script) Exited() bool { return s.process.exited() }

// AddNodeIP gives the network namespace of the cluster the address [NodeIP], as [NewControlPlane] does.
func (c *Cluster) AddNodeIP(t testing.TB) {
	t.Helper()
	if err := c.Net.addInterface(NodeIP); err != nil {
		t.Fatal(err)
	}
}

// OpenControlPlane returns a control plane that others run, by the kubeconfig of its
// administrator. Only what a client does works.
func OpenControlPlane(t testing.TB, net *NetNS, kubeconfig string) *ControlPlane {
	t.Helper()
	p := &ControlPlane{net: net, dir: filepath.Dir(kubeconfig), admin: kubeconfig}
	var err error
	if p.REST, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Fatal(err)
	}
	p.REST.Dial, p.REST.QPS = net.DialContext, -1
	if p.Client, err = kubernetes.NewForConfig(p.REST); err != nil {
		t.Fatal(err)
	}
	return p
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// libraries returns the libraries that a program of the host loads, none if it is static.
func libraries(program string) (paths []string) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	for _, match := range library.FindAllSubmatch(out, -1) {
		paths = append(paths, string(match[1]))
	}
	return paths
}

// AddProgram adds an image to the registry that has a program in /usr/local/bin, which its
// containers run, further files of the host, and the libraries that those are linked with.
func (r *Registry) AddProgram(t testing.TB, image, program string, with ...string) {
	t.Helper()
	entrypoint := "/usr/local/bin/" + filepath.Base(program)
	files := map[string]string{entrypoint[1:]: program}
	for _, file := range with {
		files[file[1:]] = file
	}
	for _, file := range append(with, program) {
		for _, lib := range libraries(file) {
			files[lib[1:]] = lib
		}
	}
	layer, err := filesLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	cfg := r.put("application/vnd.oci.image.config.v1+json", mustJSON(map[string]any{
		"architecture": goarch(), "os": "linux", "config": imageConfig{Env: []string{"PATH=/usr/local/bin:/usr/sbin"},
			Entrypoint: []string{entrypoint}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	}))
	r.tags[image] = r.put(manifestType, mustJSON(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": cfg,
		"layers": []descriptor{r.put("application/vnd.oci.image.layer.v1.tar", layer)},
	})).Digest
}

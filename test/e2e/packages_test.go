package e2e

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// releaseFile returns a file of a release: KUBELETKIT_E2E_RELEASE is what release/build has made, at least
// for amd64.
func releaseFile(t *testing.T, pattern string) string {
	t.Helper()
	dir := os.Getenv("KUBELETKIT_E2E_RELEASE")
	if dir == "" {
		Skip(t, "KUBELETKIT_E2E_RELEASE is not set; release/build makes such a directory")
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.Len(t, files, 1, "%s in %s", pattern, dir)
	return files[0]
}

// output returns what a command prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	begin := time.Now()
	out, err := exec.Command(program, args...).CombinedOutput()
	t.Logf("%s %s took %v", program, strings.Join(args, " "), time.Since(begin).Round(time.Millisecond))
	require.NoError(t, err, "%s %s\n%s", program, strings.Join(args, " "), out)
	return string(out)
}

// The tarball has a static program of the version of the release, with a tracer.
func TestTarball(t *testing.T) {
	t.Parallel()
	tarball := releaseFile(t, "minikubelet_*_linux_amd64.tar.gz")
	dir := t.TempDir()
	output(t, "tar", "-xf", tarball, "-C", dir, "--strip-components=1")
	for _, file := range []string{"LICENSE", "LICENSES-OF-DEPENDENCIES", "README.md", "minikubelet.service",
		"config.yaml", "completion/minikubelet.zsh", "man/minikubelet.1", "man/minikubelet-logs.1"} {
		assert.FileExists(t, filepath.Join(dir, file))
	}
	program := filepath.Join(dir, "minikubelet")
	version := strings.Split(filepath.Base(tarball), "_")[1]
	assert.Contains(t, output(t, program, "version"), "minikubelet v"+version+" ")
	config := filepath.Join(dir, "tracing.yaml")
	require.NoError(t, os.WriteFile(config, []byte("kind: KubeletConfiguration\n"+
		"apiVersion: kubelet.config.k8s.io/v1beta1\ntracing: {samplingRatePerMillion: 10}\n"), 0o644))
	out, _ := exec.Command(program, "check", "--config", config).CombinedOutput() // some machines are refused
	assert.Contains(t, string(out), "act: tracing,")
	out, _ = exec.Command("ldd", program).CombinedOutput()
	assert.Contains(t, string(out), "not a dynamic executable")
}

// The image, pulled from a registry and run by the manifest of the release, is an agent of another containerd.
// It mounts volumes that the containers of that containerd see.
func TestImage(t *testing.T) {
	archive, manifest := releaseFile(t, "minikubelet_*_image.tar"), releaseFile(t, "minikubelet_*_pod.yaml")
	node, outer := NewCluster(t), NewCluster(t)
	const at = "127.0.0.1:5002"
	serveRegistry(t, outer, at)
	image := push(t, archive, at, outer)

	// The paths of the node are in the directory of its cluster. What is mounted there has to propagate.
	require.NoError(t, unix.Mount(node.Dir, node.Dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(node.Dir, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", node.Dir, "", unix.MS_SHARED, ""))
	require.NoError(t, os.Symlink("c.sock", filepath.Join(node.Dir, "containerd.sock")))
	manifests := filepath.Join(node.Dir, "manifests")
	require.NoError(t, os.Mkdir(manifests, 0o755))
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	modules := filepath.Join(node.Dir, "modules") // as on a node whose kernel has none
	content := strings.NewReplacer(
		"/etc/minikubelet/manifests", manifests, "path: /run/containerd,", "path: "+node.Dir+",",
		"/var/lib/kubelet", filepath.Join(node.Dir, "kubelet"),
		"/var/log/pods", filepath.Join(node.Dir, "logs"), "path: /lib/modules,", "path: "+modules+",",
		"- --show=none", "- --show=none\n    - --hostname-override="+NodeName+
			"\n    - --healthz-port=0\n    - --cgroups-per-qos=false",
	).Replace(string(text))
	content = regexp.MustCompile(`image: .*`).ReplaceAllString(content, "image: "+image)

	outer.Preload(t, "pause:1")
	a := outer.StartAgent(t, AgentOptions{Config: map[string]any{"healthzPort": 0}})
	agent := MakePod("minikubelet")
	a.PutFile(t, "minikubelet.yaml", content)
	a.Await(t, agent, time.Minute, Running)
	assert.DirExists(t, modules)

	node.Preload(t, "pause:1", "busybox:1")
	web := MakePod("web", Main(Sh("main", Forever)),
		Mounted("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}))
	data, err := yaml.Marshal(web)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(manifests, ".web"), data, 0o644))
	require.NoError(t, os.Rename(filepath.Join(manifests, ".web"), filepath.Join(manifests, "web.yaml")))
	program := func(args ...string) string {
		out, err := outer.TryExec(t, FullName(agent), "agent", append([]string{"/usr/bin/minikubelet"}, args...)...)
		if err != nil {
			return err.Error()
		}
		return out
	}
	rootDir := "--root-dir=" + filepath.Join(node.Dir, "kubelet")
	Eventually(t, time.Minute, "pod of the agent in the container", func() error {
		if out := program("pods", rootDir); !strings.Contains(out, "Running") {
			return errors.New(out)
		}
		return nil
	})
	assert.Contains(t, node.Exec(t, FullName(web), "main", "grep", " /memory ", "/proc/mounts"), "tmpfs /memory tmpfs")
	assert.Contains(t, program("version"), "minikubelet v")

	require.NoError(t, os.Remove(filepath.Join(manifests, "web.yaml")))
	Eventually(t, time.Minute, "pod gone", func() error {
		if n := len(node.Sandboxes(t, "")); n > 0 {
			return fmt.Errorf("%d sandboxes", n)
		}
		return nil
	})
	require.NoError(t, os.Remove(filepath.Join(a.Manifests, "minikubelet.yaml")))
	a.AwaitGone(t, time.Minute, agent)
}

// push puts the image of an OCI archive into a registry, and returns its reference.
func push(t *testing.T, archive, registry string, c *Cluster) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(header.Name), header.Name)
		path := filepath.Join(dir, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	list, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	top, err := list.IndexManifest()
	require.NoError(t, err)
	require.Len(t, top.Manifests, 1)
	index, err := list.ImageIndex(top.Manifests[0].Digest)
	require.NoError(t, err)
	ref, err := name.ParseReference(registry+"/kubeletkit/minikubelet:"+
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"], name.Insecure)
	require.NoError(t, err)
	transport := &http.Transport{DialContext: c.Net.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	require.NoError(t, remote.WriteIndex(ref, index, remote.WithTransport(transport)))
	return ref.String()
}

// The deb is installed, and its unit starts an agent, with the configuration of the package but with the
// embedded runtime. An upgrade restarts the agent, and a removal stops it; its pods run on.
func TestGuestSystemdPackage(t *testing.T) {
	inGuest(t)
	deb := releaseFile(t, "minikubelet_*_amd64.deb")
	// A database of its own: that of the machine takes a minute to read in a guest.
	database := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(database, "info"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(database, "updates"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(database, "status"), nil, 0o644))
	dpkg := func(args ...string) string {
		return output(t, "dpkg", append([]string{"--admindir=" + database, "--force-unsafe-io", "--force-confold"},
			args...)...)
	}
	const hint = "systemctl enable --now minikubelet"
	assert.Contains(t, dpkg("-i", deb), hint)
	assert.NotEqual(t, "active", unitState(), "an installation starts nothing")

	const config, manifest = "/etc/minikubelet/config.yaml", "/etc/minikubelet/manifests/web.yaml"
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	own := strings.Replace(string(text), "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
		"containerRuntimeEndpoint: embedded\n", 1)
	require.NotEqual(t, string(text), own)
	require.NoError(t, os.WriteFile(config, []byte(own), 0o644))
	file := filepath.Join(t.TempDir(), "pid")
	data, err := yaml.Marshal(MakePod("web", Main(Sh("main", "echo $$$$ > "+file+"; exec sleep 2147483647"))))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(manifest, data, 0o644))
	if out, err := exec.Command("systemctl", "enable", "--now", "minikubelet").CombinedOutput(); err != nil {
		t.Fatalf("%s\n%s", out, output(t, "systemctl", "status", "--no-pager", "minikubelet"))
	}
	assert.Equal(t, "active", unitState())
	running := func() bool { return strings.Contains(output(t, "minikubelet", "pods"), "Running") }
	require.Eventually(t, running, guestWithin, time.Second)
	process, _ := bornOf(pidIn(t, file))

	// What a person finds.
	output(t, "bash", "-n", "/usr/share/bash-completion/completions/minikubelet")
	assert.Contains(t, output(t, "zcat", "/usr/share/man/man1/minikubelet-logs.1.gz"), "minikubelet\\-logs")
	assert.FileExists(t, "/usr/share/zsh/vendor-completions/_minikubelet")
	assert.FileExists(t, "/usr/share/doc/minikubelet/copyright")
	assert.FileExists(t, "/usr/share/doc/minikubelet/README.md")

	pid := output(t, "systemctl", "show", "--property=MainPID", "minikubelet")
	assert.NotContains(t, dpkg("-i", deb), hint, "an upgrade")
	assert.NotEqual(t, pid, output(t, "systemctl", "show", "--property=MainPID", "minikubelet"))
	kept, err := os.ReadFile(config)
	require.NoError(t, err)
	assert.Equal(t, own, string(kept))
	require.Eventually(t, running, guestWithin, time.Second)

	dpkg("-r", "minikubelet")
	assert.NotEqual(t, "active", unitState())
	assert.NoFileExists(t, "/usr/bin/minikubelet")
	now, alive := bornOf(pidIn(t, file))
	assert.True(t, alive)
	assert.Equal(t, process, now, "the pod runs on")
	dpkg("-P", "minikubelet")
	assert.NoFileExists(t, config)
}

// unitState returns the state of the unit, as in "active".
func unitState() string {
	out, _ := exec.Command("systemctl", "is-active", "minikubelet").Output()
	return strings.TrimSpace(string(out))
}

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The ground the other tests stand on: containerd runs a pod of the bare
// client, a container's exit code is seen, a host port answers, the pod survives
// containerd, and is gone when it is removed.
func TestBareClient(t *testing.T) {
	for name, kind := range map[string]Containerd{"current": Current, "old": Old} {
		t.Run(name, func(t *testing.T) { testBareClient(t, kind) })
	}
}

func testBareClient(t *testing.T, kind Containerd) {
	c := NewClusterWith(t, ClusterOptions{Containerd: kind})
	image := c.Registry.Image("busybox:1")
	c.Preload(t, "busybox:1")
	container := func(name, script string) *cri.ContainerConfig {
		return &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name},
			Image:    &cri.ImageSpec{Image: image},
			Command:  []string{"/bin/sh", "-c", script},
			Labels:   map[string]string{labelPodName: "smoke", labelContainerName: name},
			Linux:    &cri.LinuxContainerConfig{},
		}
	}
	pod := Pod{
		Sandbox: &cri.PodSandboxConfig{
			Metadata:     &cri.PodSandboxMetadata{Name: "smoke", Namespace: "default", Uid: "u"},
			Hostname:     "smoke",
			Labels:       map[string]string{labelPodName: "smoke"},
			PortMappings: []*cri.PortMapping{{ContainerPort: 80, HostPort: 8080}},
			Linux:        &cri.LinuxPodSandboxConfig{},
		},
		Containers: []*cri.ContainerConfig{
			container("exits", "exit 7"),
			container("web", "mkdir /www && hostname > /www/index.html && exec httpd -f -h /www"),
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sandbox, ids, err := c.RunPod(ctx, pod)
	require.NoError(t, err)

	Eventually(t, time.Minute, "exit code", func() error {
		resp, err := c.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: ids[0]})
		if err == nil && (resp.Status.State != cri.ContainerState_CONTAINER_EXITED || resp.Status.ExitCode != 7) {
			err = fmt.Errorf("%v, %d", resp.Status.State, resp.Status.ExitCode)
		}
		return err
	})
	status, err := c.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	require.NoError(t, err)
	web := http.Client{Transport: &http.Transport{DialContext: c.Net.DialContext, DisableKeepAlives: true}}
	for _, url := range []string{"http://" + status.Status.Network.Ip, "http://10.88.0.1:8080",
		"http://127.0.0.1:8080"} {
		Eventually(t, time.Minute, url, func() error {
			resp, err := web.Get(url)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && string(body) != "smoke\n" {
				err = fmt.Errorf("got %q", body)
			}
			return err
		})
	}

	pid := c.PID(t, ids[1])
	c.Kill(t)
	c.Start(t)
	assert.Equal(t, pid, c.PID(t, ids[1]), "the container survives containerd")
	assert.Equal(t, "smoke\n", c.Exec(t, "smoke", "web", "hostname"))

	require.NoError(t, c.RemoveSandbox(ctx, sandbox))
	assert.Empty(t, c.Sandboxes(t, ""))
	assert.Empty(t, c.Containers(t, ""))
}

func TestRegistryWantsCredentials(t *testing.T) {
	c := NewCluster(t)
	image := c.Registry.Image("private/busybox:1")
	require.Error(t, c.Pull(image))
	ctx, cancel := timeoutContext()
	defer cancel()
	_, err := c.Images.PullImage(ctx, &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: image},
		Auth:  &cri.AuthConfig{Username: RegistryUser, Password: RegistryPassword},
	})
	require.NoError(t, err)
	c.Registry.SetBroken("busybox:2", true)
	require.Error(t, c.Pull(c.Registry.Image("busybox:2")))
	assert.Positive(t, c.Registry.Pulls("busybox:2"))
}

// A control plane has what a node needs: the default service account, and the kubeconfig of
// the node may register that node and no other.
func TestControlPlane(t *testing.T) {
	net, err := NewNetNS()
	require.NoError(t, err)
	defer net.Close()
	begin := time.Now()
	p := NewControlPlane(t, net)
	t.Logf("a control plane starts in %v", time.Since(begin))
	assert.Contains(t, p.Kubectl(t, "get", "namespaces"), "kube-node-lease")
	register := func(kubeconfig, node string) error {
		_, err := p.TryKubectl(t, fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}", node), "create",
			"--kubeconfig", kubeconfig, "-f", "-")
		return err
	}
	kubeconfig := p.NodeKubeconfig(t, "a")
	require.NoError(t, register(kubeconfig, "a"))
	require.ErrorContains(t, register(kubeconfig, "b"), "node \"a\" is not allowed to modify node \"b\"")
	require.Error(t, register(p.BootstrapKubeconfig(t), "b"))
	p.KillAPIServer(t)
	begin = time.Now()
	p.StartAPIServer(t)
	t.Logf("its API server starts again in %v", time.Since(begin))
	assert.Contains(t, p.Kubectl(t, "get", "nodes"), "a ")
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestControlPlaneOfStaticPods runs the script of docs/operate/run.md: the control plane is static pods
// of the agent, which joins it by TLS bootstrap. After a reboot all comes back by itself.
func TestControlPlaneOfStaticPods(t *testing.T) {
	t.Parallel()
	Need(t, "openssl", "etcd")
	c := NewCluster(t)
	etcd, err := exec.LookPath("etcd")
	require.NoError(t, err)
	c.Registry.AddProgram(t, "etcd:e2e", etcd)
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		c.Registry.AddProgram(t, name+":e2e", KubernetesBinary(t, name))
	}
	c.Preload(t, "pause:1", "busybox:1", "etcd:e2e", "kube-apiserver:e2e", "kube-controller-manager:e2e",
		"kube-scheduler:e2e")
	c.AddNodeIP(t)
	dir := filepath.Join(c.Dir, "cluster")
	up := func() *Script {
		return c.RunScript(t, []string{
			"ENDPOINT=" + c.Endpoint(), "NODE=" + NodeName, "IP=" + NodeIP, "REGISTRY=127.0.0.1:5000",
			"VERSION=e2e", "ETCD=e2e",
		}, "examples/minikubelet/cluster/up", dir, "--cgroup-root", c.CgroupRoot(), "--eviction-hard",
			"memory.available<1Mi") // the disk of this machine may be full
	}
	admin := filepath.Join(dir, "admin.conf")
	begin := time.Now()
	script := up()
	Eventually(t, within, "kubeconfig of the administrator", func() error {
		_, err := os.Stat(admin)
		return err
	})
	plane := OpenControlPlane(t, c.Net, admin)
	ready := func() {
		t.Helper()
		Eventually(t, 4*time.Minute, "node and control plane ready", func() error {
			if script.Exited() {
				t.Fatal("the agent has ended")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			node, err := plane.Client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			pods, err := plane.Client.CoreV1().Pods("kube-system").List(ctx,
				metav1.ListOptions{LabelSelector: "tier=control-plane"})
			if err != nil {
				return err
			}
			if len(pods.Items) != 4 {
				return fmt.Errorf("%d pods of the control plane", len(pods.Items))
			}
			errs := []error{nodeReady(node)}
			for i := range pods.Items {
				errs = append(errs, Ready(true)(&pods.Items[i]))
			}
			return errors.Join(errs...)
		})
	}
	ready()
	t.Logf("a cluster after %v", time.Since(begin))
	Eventually(t, within, "default service account", func() error {
		_, err := plane.Client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	plane.Kubectl(t, "run", "first", "--image", c.Registry.Image("busybox:1"), "--command", "--",
		"/bin/sh", "-c", Forever)
	plane.Kubectl(t, "wait", "--for=condition=Ready", "pod/first", "--timeout=180s")
	before := plane.AwaitPod(t, "default", "first", within, Running)

	script.Kill(t)
	c.Reboot(t)
	begin = time.Now()
	script = up()
	again := plane.AwaitPod(t, "default", "first", 4*time.Minute, Running, func(pod *v1.Pod) error {
		if Status(pod, "first").ContainerID == Status(before, "first").ContainerID {
			return errors.New("the API server shows what was before the reboot")
		}
		return nil
	})
	ready()
	t.Logf("the cluster is back after %v", time.Since(begin))
	assert.Equal(t, before.UID, again.UID)

	// Agent and runtime are killed. The containers continue to run: nothing starts again.
	containers := func() map[string]string {
		t.Helper()
		pods, err := plane.Client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		ids := map[string]string{}
		for _, pod := range pods.Items {
			for _, c := range pod.Status.ContainerStatuses {
				ids[pod.Name+"/"+c.Name] = fmt.Sprint(c.ContainerID, " restart ", c.RestartCount)
			}
		}
		return ids
	}
	were := containers()
	require.Len(t, were, 5)
	script.Kill(t)
	c.Kill(t)
	killed := time.Now()
	c.Start(t)
	script = up()
	Eventually(t, 2*time.Minute, "the lease is renewed", func() error {
		lease, err := plane.Client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), NodeName,
			metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(killed) {
			err = errors.New("not yet")
		}
		return err
	})
	ready()
	assert.Equal(t, were, containers())
	plane.Kubectl(t, "delete", "pod", "first", "--grace-period=1")
}

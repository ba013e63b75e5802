package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// controlPlanePods are the containers of the static pods of kubeadm; their pods have the node's name behind it.
var controlPlanePods = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// kubeadmSwap has the workload of TestKubeadmSwap. What is steady is never replaced; "rolling" is
// replaced all the time.
const kubeadmSwap = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.80, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: a
        image: 127.0.0.1:5000/busybox:1
        command: [sh, -c, "mkdir /www; echo hello >/www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
        livenessProbe: {httpGet: {port: 8080}, periodSeconds: 2, timeoutSeconds: 10}
---
apiVersion: v1
kind: Pod
metadata: {name: stream}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: a, image: "127.0.0.1:5000/busybox:1", command: [sh, -c, "while :; do nc -l -p 9000 -e cat; done"]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: rolling}
spec:
  replicas: 3
  selector: {matchLabels: {app: rolling}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: rolling}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: a
        image: 127.0.0.1:5000/busybox:1
        command: [sh, -c, "trap 'exit 0' TERM; sleep 2147483647 & wait"]
        readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 10}
`

// kubeadmReady is an error unless the node is Ready and has n pods in the namespace, all Ready.
func kubeadmReady(t *testing.T, n *KubeadmNode, namespace string, count int) error {
	node, err := n.Plane.Client.CoreV1().Nodes().Get(t.Context(), NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := n.Plane.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != count {
		return fmt.Errorf("%d pods", len(pods.Items))
	}
	errs := []error{nodeReady(node)}
	for i := range pods.Items {
		if err := Ready(true)(&pods.Items[i]); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", pods.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// controlPlaneContainers returns the running containers of the static pods, by their names.
func controlPlaneContainers(t *testing.T, n *KubeadmNode) map[string]*cri.Container {
	t.Helper()
	running := map[string]*cri.Container{}
	for _, name := range controlPlanePods {
		for _, c := range n.Containers(t, name+"-"+NodeName) {
			if c.State == cri.ContainerState_CONTAINER_RUNNING {
				running[name] = c
			}
		}
	}
	return running
}

// mirrorsRight is an error unless each static pod has a mirror pod with the hash and the ID of the
// container that runs, which fulfils the conditions.
func mirrorsRight(t *testing.T, n *KubeadmNode, conditions ...Condition) error {
	running := controlPlaneContainers(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, name := range controlPlanePods {
		pod, err := n.Plane.Client.CoreV1().Pods("kube-system").Get(ctx, name+"-"+NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c, status := running[name], Status(pod, name)
		switch {
		case c == nil:
			errs = append(errs, fmt.Errorf("%s does not run", name))
		case pod.Annotations[v1.MirrorPodAnnotationKey] != c.Labels["io.kubernetes.pod.uid"]:
			errs = append(errs, fmt.Errorf("mirror of %s: hash %s, not %s", name,
				pod.Annotations[v1.MirrorPodAnnotationKey], c.Labels["io.kubernetes.pod.uid"]))
		case status.ContainerID != "containerd://"+c.Id || status.State.Running == nil:
			errs = append(errs, fmt.Errorf("mirror of %s: not container %s: %+v", name, c.Id, status))
		}
		for _, condition := range conditions {
			if err := condition(pod); err != nil {
				errs = append(errs, fmt.Errorf("mirror of %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// awaitMirrors waits until the mirror pods are right and have been for some seconds, and returns
// how long that took since now and since the API server was away.
func awaitMirrors(t *testing.T, n *KubeadmNode) time.Duration {
	t.Helper()
	from, since := time.Now(), time.Time{}
	// A kubelet that has restarted the control plane may write the status of its pods two minutes later, on a busy
	// machine.
	Eventually(t, 5*time.Minute, "mirror pods right", func() error {
		if err := n.Plane.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).Do(
			t.Context()).Error(); err != nil {
			from, since = time.Now(), time.Time{}
			return err
		}
		if err := mirrorsRight(t, n); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < 8*time.Second {
			return errors.New("not for long enough")
		}
		return nil
	})
	return since.Sub(from)
}

// A kubelet and this agent take the node of kubeadm from each other, three times, the last time
// without an API server. Its pods do not notice: no container of an API pod is restarted, no pod
// is not ready, no connection is cut, no request fails. Static pods are not restarted either.
func TestKubeadmSwap(t *testing.T) {
	t.Parallel()
	Need(t)
	n := NewKubeadmNode(t)
	n.Preload(t, "busybox:1")
	agent, kubelet := MinikubeletBinary(t), KubeletBinary(t)
	began := time.Now()
	n.Init(t, agent)
	t.Logf("kubeadm init: %v", time.Since(began))
	// The control plane, kube-proxy and two pods of CoreDNS.
	Eventually(t, 2*time.Minute, "pods of kubeadm ready", func() error { return kubeadmReady(t, n, "kube-system", 7) })
	t.Logf("pods of kubeadm ready: %v", time.Since(began))
	Eventually(t, within, "default service account", func() error {
		_, err := n.Plane.Client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	n.Plane.Apply(t, kubeadmSwap)
	Eventually(t, 2*time.Minute, "workload ready", func() error { return kubeadmReady(t, n, "default", 5) })
	stream, err := n.Plane.Client.CoreV1().Pods("default").Get(t.Context(), "stream", metav1.GetOptions{})
	require.NoError(t, err)

	time.Sleep(10 * time.Second) // a kubelet holds younger containers for new ones
	use := startUse(t, n, "10.96.0.80:80", stream.Status.PodIP+":9000")
	swap := func(to string, during func()) {
		t.Helper()
		name, began := to[strings.LastIndex(to, "/")+1:], time.Now()
		before := controlPlaneContainers(t, n)
		n.StopAgent(t)
		use.swapped(to == kubelet)
		n.StartAgent(t, to)
		if during != nil {
			during()
		}
		healthy := time.Now()
		right := awaitMirrors(t, n)
		restarted := 0
		for name, c := range controlPlaneContainers(t, n) {
			if before[name] != nil && before[name].Id != c.Id {
				restarted++
			}
		}
		t.Logf("%s: healthy after %v, mirror pods right %v after that and the API server, %d containers of the "+
			"control plane restarted",
			name, healthy.Sub(began).Round(time.Millisecond), right.Round(time.Millisecond), restarted)
		if restarted == 0 {
			assert.Less(t, right, 10*time.Second)
		}
		// This agent waits for the startup probes of static pods, whose period is 10 s.
		Eventually(t, within, "mirror pods ready", func() error { return mirrorsRight(t, n, Ready(true)) })
		assert.Zero(t, restarted)
		use.check(t)
	}
	swap(kubelet, nil)
	swap(agent, nil)
	swap(kubelet, nil)
	swap(agent, nil)
	swap(kubelet, nil)

	// The kubelet ends the API server, and this agent starts it.
	manifest, away := n.Own("/etc/kubernetes/manifests/kube-apiserver.yaml"),
		n.Own("/etc/kubernetes/kube-apiserver.yaml")
	use.serverEnds()
	require.NoError(t, os.Rename(manifest, away))
	Eventually(t, time.Minute, "end of the API server", func() error {
		if controlPlaneContainers(t, n)["kube-apiserver"] != nil {
			return errors.New("it runs")
		}
		return nil
	})
	swap(agent, func() {
		time.Sleep(5 * time.Second)
		require.NoError(t, os.Rename(away, manifest))
		Eventually(t, time.Minute, "API server ready", func() error {
			return n.Plane.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
		})
		back := time.Now()
		Eventually(t, 15*time.Second, "renewal of the lease, whose period is 10 s", func() error {
			leases := n.Plane.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
			lease, err := leases.Get(t.Context(), "node", metav1.GetOptions{})
			if err == nil && back.Sub(lease.Spec.RenewTime.Time) > 10*time.Second {
				err = fmt.Errorf("it was renewed at %v", lease.Spec.RenewTime)
			}
			return err
		})
	})
	use.stop(t)
}

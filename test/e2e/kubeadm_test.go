package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// kubeadmPods are the pods of a node of kubeadm: four of the control plane, kube-proxy and two of CoreDNS.
const kubeadmPods = 7

// kubeadmReady is an error unless the node is Ready and has the pods of kubeadm and n others, all Ready.
func kubeadmReady(t *testing.T, n *KubeadmNode, others int) error {
	node, err := n.Plane.Client.CoreV1().Nodes().Get(t.Context(), NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := n.Plane.Client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != kubeadmPods+others {
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

// kubeadm makes a cluster with this agent in the place of a kubelet, on the files and flags of kubeadm.
func TestKubeadmSwap(t *testing.T) {
	t.Parallel()
	Need(t)
	n := NewKubeadmNode(t)
	n.Preload(t, "busybox:1")
	began := time.Now()
	n.Init(t, MinikubeletBinary(t))
	t.Logf("kubeadm init: %v", time.Since(began))
	Eventually(t, 2*time.Minute, "all pods ready", func() error { return kubeadmReady(t, n, 0) })
	t.Logf("all ready: %v", time.Since(began))
}

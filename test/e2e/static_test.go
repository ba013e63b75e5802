package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// Static pods without metadata.uid go from a kubelet to this agent and back three times, also those that this agent has
// started: containers and mirror pods stay. With an older API server, the kubelet is of its version.
func TestStaticPodsWithoutUID(t *testing.T) {
	t.Parallel()
	Need(t)
	old := cmp.Or(OldKubernetes(), "1.36")
	t.Run(old, func(t *testing.T) {
		t.Parallel()
		staticPodsWithoutUID(t, "kubelet-"+old, "--static-pod-uids="+old)
	})
	if OldKubernetes() == "" {
		t.Run("1.37", func(t *testing.T) {
			t.Parallel()
			staticPodsWithoutUID(t, "kubelet")
		})
	}
}

func staticPodsWithoutUID(t *testing.T, program string, args ...string) {
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	kubeconfig := s.plane.NodeKubeconfig(t, NodeName)
	kubelet := c.NewAgent(t, AgentOptions{Binary: KubernetesBinary(t, program), Kubeconfig: kubeconfig})
	agent := c.NewAgent(t, AgentOptions{Kubeconfig: kubeconfig, Args: args})
	await := func(pods []*v1.Pod) (mirrors []*v1.Pod) {
		for _, pod := range pods {
			mirrors = append(mirrors, s.await(t, "default", FullName(pod), Running, Ready(true)))
		}
		return mirrors
	}
	same := func(before []*v1.Pod, pods []*v1.Pod) {
		t.Helper()
		for i, mirror := range await(pods) {
			assert.Equal(t, before[i].Annotations["kubernetes.io/config.hash"],
				mirror.Annotations["kubernetes.io/config.hash"])
			adopted(t, before[i], mirror) // also the mirror pod
		}
	}
	pods := adoptionPods()
	pods = pods[:len(pods)-1]
	for _, pod := range pods {
		pod.UID = ""
		pod.Labels = map[string]string{"tier": "control-plane"}
		pod.Annotations = map[string]string{"example.com/note": "kept"}
	}

	s.agent = kubelet
	kubelet.Put(t, pods...)
	kubelet.Start(t)
	s.awaitNode(t, nodeReady)
	kubelets := await(pods)
	swap := func(to *Agent) {
		s.agent.Stop(t)
		to.Start(t)
		to.WaitHealthy(t)
		s.agent = to
		time.Sleep(5 * time.Second) // for an agent that decides otherwise later
	}
	for range 3 {
		swap(agent)
		same(kubelets, pods)
		swap(kubelet)
		same(kubelets, pods)
	}

	swap(agent)
	own := MakePod("own", Main(Sh("c", Forever)))
	agent.Put(t, own)
	all := append(pods[:len(pods):len(pods)], own)
	before := await(all)
	swap(kubelet)
	same(before, all)
	swap(agent)
	same(before, all)

	// A manifest that has changed while no agent ran is another pod.
	agent.Stop(t)
	pods[1].Spec.Containers[0].Args = append(pods[1].Spec.Containers[0].Args, "changed")
	agent.Put(t, pods[1])
	agent.Start(t)
	s.await(t, "default", FullName(pods[1]), Running, Ready(true),
		func(pod *v1.Pod) error { return otherThan(kubelets[1], pod) })
	same(kubelets[:1], pods[:1])
	agent.Remove(t, all...)
	agent.AwaitGone(t, 2*within, all...)
}

// A manifest that is removed and put back without a change is the same pod, which is restarted.
func TestManifestIsPutBack(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	for _, pause := range []time.Duration{0, 5 * time.Millisecond, 100 * time.Millisecond,
		time.Second, 5 * time.Second} {
		pod := MakePod(fmt.Sprint("back-", pause.Milliseconds()), Main(Sh("c", Forever)))
		pod.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
		s.agent.Put(t, pod)
		before := s.agent.Await(t, pod, within, Running)
		path := filepath.Join(s.agent.Manifests, pod.Name+".yaml")
		manifest, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		time.Sleep(pause)
		require.NoError(t, os.WriteFile(path, manifest, 0o644))
		after := s.agent.Await(t, pod, within, Running, Restarts("c", 1))
		assert.Equal(t, before.UID, after.UID)
	}
}

// otherThan returns an error if the mirror pod is that of the same pod.
func otherThan(before, pod *v1.Pod) error {
	const hash = "kubernetes.io/config.hash"
	if before.Annotations[hash] == pod.Annotations[hash] {
		return errors.New("the pod of before")
	}
	return nil
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// secretValue is the value of the secrets of the tests.
const secretValue = "hunter-of-secrets"

// secrets are texts that must not appear: the value of a secret as it is and encoded, tokens, keys.
var secrets = []string{secretValue, "aHVudGVyLW9mLXNlY3JldH", "eyJhbGciOi", "PRIVATE KEY",
	"0123456789abcdef", RegistryPassword}

func (s *nodeSuite) noSecretsInLog(t *testing.T) {
	t.Helper()
	lines, err := s.agent.AnyOf(secrets...)
	require.NoError(t, err)
	for _, line := range lines {
		t.Errorf("a secret in the log: %s", line)
	}
}

func (s *nodeSuite) noSecretsInEvents(t *testing.T, namespace string) {
	t.Helper()
	events, err := s.plane.Client.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, e := range events.Items {
		for _, text := range secrets {
			if strings.Contains(e.Message, text) {
				t.Errorf("a secret in the event %s of %s: %s", e.Reason, e.InvolvedObject.Name, e.Message)
			}
		}
	}
}

// A critical pod that does not fit takes the place of another pod: of as few as possible.
func testPreemption(t *testing.T, s *nodeSuite) {
	ns := s.plane.Namespace(t, "preemption")
	cpu := s.awaitNode(t, nodeReady).Status.Allocatable.Cpu().MilliValue()
	pod := func(name string, milli int64) *v1.Pod {
		c := Sh("c", Forever)
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
		pod := MakePod(name, Grace(1), Main(c))
		pod.Spec.NodeName = NodeName // past the scheduler, which would preempt by itself
		return pod
	}
	s.create(t, ns, pod("small", 100), pod("large", cpu-200))
	small := s.await(t, ns, "small", Running)
	s.await(t, ns, "large", Running)
	late, critical := pod("late", 300), pod("critical", 300)
	critical.Spec.PriorityClassName = "system-node-critical"
	s.create(t, ns, late)
	assert.Equal(t, "OutOfcpu", s.await(t, ns, "late", Phase(v1.PodFailed)).Status.Reason)
	s.create(t, ns, critical)
	s.await(t, ns, "critical", Running)
	preempted := s.await(t, ns, "large", Phase(v1.PodFailed))
	assert.Equal(t, "Preempting", preempted.Status.Reason)
	assert.True(t, slices.ContainsFunc(preempted.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget &&
			c.Message == "Pod was preempted by Kubelet to accommodate a critical pod."
	}), "%v", preempted.Status.Conditions)
	assert.NoError(t, s.noRunning(t, "large"))
	adopted(t, small, s.await(t, ns, "small", Running))
	Eventually(t, within, "event", func() error {
		if out := s.plane.Kubectl(t, "get", "-n", ns, "events"); !strings.Contains(out, "Preempting") {
			return errors.New(out)
		}
		return nil
	})
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "small", "large", "late", "critical")
	s.awaitGone(t, ns, "small", "large", "late", "critical")
}

// TestNodeCertificates has the certificate of a node replaced before it expires, and then expire
// while there is no signer. The pods continue to run.
func TestNodeCertificates(t *testing.T) {
	t.Parallel()
	// A new one is requested when 70 to 90 % of the life are over: the last tenth is time enough.
	const life, short = 2 * time.Minute, 40 * time.Second
	c := NewCluster(t)
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	c.Preload(t, "pause:1", "busybox:1")
	certs := t.TempDir()
	bootstrap := s.plane.BootstrapKubeconfig(t)
	current := filepath.Join(certs, "kubelet-client-current.pem")
	expires := time.Now().Add(life)
	s.agent = c.NewAgent(t, AgentOptions{
		Kubeconfig: s.plane.ShortNodeKubeconfig(t, NodeName, life), Config: map[string]any{"rotateCertificates": true},
		Args: []string{"--bootstrap-kubeconfig", bootstrap, "--cert-dir", certs},
	})
	s.start(t)
	ns := s.plane.Namespace(t, "certificates")
	s.create(t, ns, MakePod("stays", Main(readyNow("c"))), MakePod("crashes", Main(Sh("c", "while [ ! -e /end ]; do "+
		"sleep 0.1; done; rm /end; exit 3"))))
	stays := s.await(t, ns, "stays", Running, Ready(true))
	s.await(t, ns, "crashes", Running)
	flaps := s.watchReadiness(t, ns)

	Eventually(t, eventually, "a new certificate", func() error {
		_, err := os.Stat(current)
		return err
	})
	assert.True(t, time.Now().Before(expires), "it came before the old one has expired")
	time.Sleep(time.Until(expires.Add(2 * time.Second)))
	s.plane.Kubectl(t, "annotate", "-n", ns, "pod", "stays", "a=b")
	s.create(t, ns, MakePod("later", Main(Sh("c", Forever))))
	s.await(t, ns, "later", Running)
	adopted(t, stays, s.await(t, ns, "stays", Running))
	for _, flap := range flaps() {
		t.Errorf("became unready: %s", flap)
	}

	// Now there is no signer.
	s.agent.Kill(t)
	require.NoError(t, os.RemoveAll(certs))
	s.plane.ShortNodeKubeconfig(t, NodeName, short)
	expires = time.Now().Add(short)
	s.start(t)
	s.plane.FreezeControllers(t, true)
	time.Sleep(time.Until(expires.Add(2 * time.Second)))
	s.End(t, "crashes", "c")
	Eventually(t, within, "restarted", func() error {
		if n := len(s.Containers(t, "crashes")); n < 2 || s.runs(t, "crashes") != 1 {
			return fmt.Errorf("%d instances", n)
		}
		return nil
	})
	time.Sleep(2 * time.Second)
	pod, err := s.plane.Client.CoreV1().Pods(ns).Get(t.Context(), "crashes", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Zero(t, Status(pod, "c").RestartCount, "the API server refuses an expired certificate")
	assert.False(t, s.agent.Exited())

	s.plane.FreezeControllers(t, false)
	back := time.Now()
	s.await(t, ns, "crashes", Running, Restarts("c", 1))
	t.Logf("the truth is there %v after certificates are signed again", time.Since(back))
	s.awaitNode(t, nodeReady)
	adopted(t, stays, s.await(t, ns, "stays", Running))
	info, err := os.Stat(current)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	s.noSecretsInEvents(t, ns)
	s.noSecretsInLog(t)
}

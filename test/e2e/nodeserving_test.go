package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestServingCertificate has the serving certificate of a node requested, approved and replaced
// before it expires, for an API server that verifies it. Sessions that are open do not notice.
func TestServingCertificate(t *testing.T) {
	t.Parallel()
	// The signer dates certificates back by 5 minutes. A new one is requested when 70 to 90 % of
	// its life are over: 15 s to 105 s after it was signed.
	const life = 150 * time.Second
	c := NewCluster(t)
	s := &nodeSuite{Cluster: c, plane: NewControlPlaneWith(t, c.Net, map[string][]string{
		"kube-apiserver":          {"--kubelet-certificate-authority", ClusterDirVar + "/ca.crt"},
		"kube-controller-manager": {"--cluster-signing-duration", life.String()},
	})}
	c.Preload(t, "pause:1", "busybox:1")
	s.agent = c.NewAgent(t, AgentOptions{Kubeconfig: s.plane.NodeKubeconfig(t, NodeName),
		Config: map[string]any{"serverTLSBootstrap": true}})
	s.start(t)
	ns := s.plane.Namespace(t, "serving")
	s.plane.Kubectl(t, "run", "web", "-n", ns, "--image", s.Registry.Image("busybox:1"), "--command", "--", "/bin/sh",
		"-c", "while :; do echo tick; sleep 0.5; done")
	s.await(t, ns, "web", Running)

	trusted, _ := s.plane.Authority()
	serving := func() (*x509.Certificate, error) {
		at, err := url.Parse(s.agent.APIURL())
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		raw, err := c.Net.DialContext(ctx, "tcp", at.Host)
		if err != nil {
			return nil, err
		}
		defer raw.Close()
		conn := tls.Client(raw, &tls.Config{RootCAs: trusted, ServerName: NodeIP})
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		return conn.ConnectionState().PeerCertificates[0], nil
	}
	_, err := serving()
	require.Error(t, err, "there is no certificate yet")
	_, err = s.plane.TryKubectl(t, "", "logs", "-n", ns, "web")
	require.Error(t, err)
	s.approve(t)
	var first *x509.Certificate
	Eventually(t, within, "serving certificate", func() (err error) {
		first, err = serving()
		return err
	})
	assert.Equal(t, "system:node:"+NodeName, first.Subject.CommonName)

	var typed, ticks screen
	session := s.plane.KubectlCommand(t, nil, "exec", "-n", ns, "-i", "web", "--", "cat")
	in, err := session.StdinPipe()
	require.NoError(t, err)
	session.Stdout = &typed
	follower := s.plane.KubectlCommand(t, nil, "logs", "-n", ns, "-f", "web", "--tail=1")
	follower.Stdout = &ticks
	for _, cmd := range []*exec.Cmd{session, follower} {
		require.NoError(t, c.Net.Do(cmd.Start))
		t.Cleanup(func() { _ = cmd.Process.Kill() })
	}
	goesOn := func(when string) {
		t.Helper()
		_, err := fmt.Fprintln(in, when)
		require.NoError(t, err)
		typed.shows(t, when+"\n")
		ticks.shows(t, ticks.String()+"tick\n")
	}
	goesOn("with the first certificate")

	s.approve(t)
	var second *x509.Certificate
	Eventually(t, within, "the next certificate", func() (err error) {
		if second, err = serving(); err == nil && second.SerialNumber.Cmp(first.SerialNumber) == 0 {
			err = errors.New("it is the first one")
		}
		return err
	})
	assert.True(t, time.Now().Before(first.NotAfter), "it came before the first one has expired")
	t.Logf("replaced %v before it expires", time.Until(first.NotAfter).Round(time.Second))
	goesOn("with the second certificate")
	time.Sleep(time.Until(first.NotAfter.Add(2 * time.Second)))
	goesOn("after the first one has expired")
	assert.Equal(t, "new\n", s.plane.Kubectl(t, "exec", "-n", ns, "web", "--", "echo", "new"), "in a new session")
	require.NoError(t, in.Close())
	require.NoError(t, session.Wait())
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "web", "--grace-period=1")
	require.NoError(t, follower.Wait(), "it ends with the container")
	s.noSecretsInLog(t)
}

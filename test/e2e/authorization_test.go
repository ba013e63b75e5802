package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// clientOfPort is a client of the port for the API server.
type clientOfPort struct {
	base, token string
	http        *http.Client
}

// request returns the status of an answer, and its text.
func (c *clientOfPort) request(method, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return 0, "", err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// permissions are the roles of the table, each with one rule: the verb and the subresource.
var permissions = map[string][2]string{
	"scraper": {"get", "metrics"}, "reader": {"get", "log"}, "lister": {"get", "pods"}, "prober": {"get", "healthz"}, "viewer": {"get", "configz"},
	"proxy": {"get", "proxy"}, "runner": {"create", "proxy"}, "stats": {"get", "stats"}, "nobody": {"get", "spec"},
	"checkpointer": {"create", "checkpoint"}, "status": {"get", "statusz"},
}

// roles are the objects of the permissions, for service accounts and for users of the same names.
func roles(ns string) string {
	var all strings.Builder
	for name, rule := range permissions {
		fmt.Fprintf(&all, `
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: port-%[1]s}
rules: [{apiGroups: [""], resources: [nodes/%[4]s], verbs: [%[3]s]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: port-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: port-%[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`, name, ns, rule[0], rule[1])
	}
	return all.String()
}

func TestAuthorization(t *testing.T) {
	t.Parallel()
	testAuthorization(t, AgentOptions{})
}

// The table is that of kubelet.
func TestAuthorizationOfKubelet(t *testing.T) {
	t.Parallel()
	testAuthorization(t, AgentOptions{Binary: KubeletBinary(t)})
}

// testAuthorization requests paths of the port as users with different permissions, by tokens of
// service accounts and by certificates. The certificate of the port is requested from the
// cluster, but for kubelet's, which signs itself: its request may take minutes.
func testAuthorization(t *testing.T, options AgentOptions) {
	c := NewCluster(t)
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	c.Preload(t, "pause:1", "busybox:1")
	trusted, caFile := s.plane.Authority()
	options.Kubeconfig = s.plane.NodeKubeconfig(t, NodeName)
	ours := options.Binary == ""
	options.Config = map[string]any{
		"serverTLSBootstrap": ours,
		"authentication":     map[string]any{"x509": map[string]string{"clientCAFile": caFile}, "webhook": map[string]any{"cacheTTL": "1s"}},
		"authorization":      map[string]any{"mode": "Webhook", "webhook": map[string]string{"cacheAuthorizedTTL": "1s", "cacheUnauthorizedTTL": "1s"}},
	}
	s.agent = c.NewAgent(t, options)
	s.start(t)
	newClient := func(token string, certs ...tls.Certificate) *clientOfPort {
		transport := &http.Transport{DialContext: c.Net.DialContext, TLSClientConfig: &tls.Config{RootCAs: trusted,
			InsecureSkipVerify: !ours, Certificates: certs}}
		t.Cleanup(transport.CloseIdleConnections)
		return &clientOfPort{s.agent.APIURL(), token, &http.Client{Transport: transport}}
	}

	// The serving certificate is approved by an administrator.
	anonymous := newClient("")
	if ours {
		_, _, err := anonymous.request("GET", "/healthz")
		require.Error(t, err, "there is no certificate yet")
		s.approve(t)
	}
	Eventually(t, within, "serving certificate", func() error {
		_, _, err := anonymous.request("GET", "/healthz")
		return err
	})

	ns := s.plane.Namespace(t, "authorization")
	s.plane.Apply(t, roles(ns))
	s.plane.Kubectl(t, "run", "web", "-n", ns, "--image", s.Registry.Image("busybox:1"), "--command", "--", "/bin/sh",
		"-c", "echo hello; "+Forever)
	s.await(t, ns, "web", Running)

	const forbidden, unauthorized = http.StatusForbidden, http.StatusUnauthorized
	logs, run := "/containerLogs/"+ns+"/web/web", "/run/"+ns+"/web/web?cmd=true"
	paths := []struct{ method, path, allowed string }{ // allowed are those who may
		{"GET", "/metrics", "scraper"},
		{"GET", "/metrics/probes", "scraper"},
		{"GET", "/metrics/resource", "scraper"},
		{"GET", "/metrics/cadvisor", "scraper"},
		{"GET", "/metrics/slis", "scraper"},
		{"GET", "/stats/summary", "stats"},
		{"GET", "/pods", "lister proxy"},
		{"GET", "/runningpods/", "lister proxy"},
		{"GET", "/healthz", "prober proxy"},
		{"GET", "/healthz/syncloop", "prober proxy"},
		{"GET", "/configz", "viewer proxy"},
		{"GET", "/logs/", "reader"},
		{"GET", logs, "proxy"},
		{"GET", "/containerLogs/" + ns + "/none/web", "proxy"},
		{"GET", "/debug/pprof/cmdline", "proxy"},
		{"POST", run, "runner"},
		{"POST", "/exec/" + ns + "/web/web?command=true&output=1", "runner"},
		{"POST", "/attach/" + ns + "/web/web?output=1", "runner"},
		{"POST", "/portForward/" + ns + "/web", "runner"},
		{"POST", "/checkpoint/" + ns + "/none/web", "checkpointer"},
		{"PUT", "/debug/flags/v", ""},
		{"PUT", "/pods", ""},
		{"DELETE", "/pods", ""},
		{"POST", "/logs/", ""},
		{"POST", "/metrics", ""},
	}
	if ours {
		paths = append(paths, []struct{ method, path, allowed string }{
			{"GET", "/nothing", "proxy"},                                        // kubelet says to everybody that it does not exist
			{"GET", "/exec/" + ns + "/web/web?command=true&output=1", "runner"}, // kubelet: proxy
			{"GET", "/attach/" + ns + "/web/web?output=1", "runner"},
			{"GET", "/portForward/" + ns + "/web?port=80", "runner"},
			{"GET", "/debug/history/" + ns + "/web", "proxy"},
			{"GET", "/statusz", "status"}, // kubelet has these two behind gates
			{"GET", "/flagz", "viewer"},
		}...)
	}
	users := map[string][]*clientOfPort{}
	for name := range permissions {
		token := strings.TrimSpace(s.plane.Kubectl(t, "create", "token", name, "-n", ns))
		users[name] = []*clientOfPort{newClient(token), newClient("", s.plane.Issue(t, name))}
	}
	for name, clients := range users {
		for kind, client := range clients {
			for _, tc := range paths {
				status, body, err := client.request(tc.method, tc.path)
				require.NoError(t, err)
				may := false
				for user := range strings.FieldsSeq(tc.allowed) {
					may = may || user == name
				}
				if got := status != forbidden && status != unauthorized; got != may {
					t.Errorf("%s (client %d): %s %s: %d %s", name, kind, tc.method, tc.path, status, body)
				}
			}
		}
	}

	admin := newClient("", s.plane.Issue(t, "boss", "system:masters"))
	for _, tc := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok"}, {"GET", logs, 200, "hello\n"}, {"POST", run, 200, ""}, {"GET", "/pods", 200, `"name":"web"`}, {"GET", "/runningpods/", 200, `"name":"web"`},
		{"GET", "/configz", 200, `"kubeletconfig":{`}, {"GET", "/containerLogs/" + ns + "/none/web", 404, `pod "none" does not exist`},
	} {
		status, body, err := admin.request(tc.method, tc.path)
		require.NoError(t, err)
		assert.Equal(t, tc.status, status, "%s: %s", tc.path, body)
		assert.Contains(t, body, tc.body, tc.path)
	}

	// The answer to an unknown client does not depend on what exists.
	for _, client := range []*clientOfPort{anonymous, newClient("wrong"), newClient(users["proxy"][0].token + "x")} {
		for _, tc := range paths {
			status, body, err := client.request(tc.method, tc.path)
			require.NoError(t, err)
			assert.Equal(t, unauthorized, status, tc.path)
			assert.Equal(t, "Unauthorized", strings.TrimSpace(body), tc.path)
		}
	}

	// What is taken away ends with the cache.
	becomes := func(client *clientOfPort, path string, want int) {
		t.Helper()
		Eventually(t, within, fmt.Sprintf("%s answers with %d", path, want), func() error {
			status, _, err := client.request("GET", path)
			if err == nil && status != want {
				err = fmt.Errorf("status %d", status)
			}
			return err
		})
	}
	s.plane.Kubectl(t, "delete", "serviceaccount", "-n", ns, "scraper")
	becomes(users["scraper"][0], "/metrics", unauthorized)
	becomes(users["scraper"][1], "/metrics", http.StatusOK)
	s.plane.Kubectl(t, "delete", "clusterrolebinding", "port-scraper")
	becomes(users["scraper"][1], "/metrics", forbidden)
	s.plane.Kubectl(t, "delete", "pod", "-n", ns, "web", "--grace-period=1")
}

// approve approves the request for a serving certificate of the node.
func (s *nodeSuite) approve(t *testing.T) {
	t.Helper()
	Eventually(t, eventually, "request for a serving certificate", func() error {
		// a new one comes when most of the life of the old one is over
		list, err := s.plane.Client.CertificatesV1().CertificateSigningRequests().List(t.Context(),
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			csr := &list.Items[i]
			if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(csr.Status.Conditions) > 0 {
				continue
			}
			csr.Status.Conditions = append(csr.Status.Conditions,
				certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved,
					Status: v1.ConditionTrue, Reason: "E2E"})
			_, err := s.plane.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), csr.Name,
				csr, metav1.UpdateOptions{})
			return err
		}
		return errors.New("none")
	})
}

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// providerScript is a plugin: it keeps its requests, and fails for namespaces whose annotation is "broken".
const providerScript = `#!/bin/sh
request=$(cat)
echo "$request" >> "$0.requests"
case "$request" in *'"broken"'*) echo "no access for broken" >&2; exit 4;; esac
cat <<END
{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry", "cacheDuration": "1h",
 "auth": {"127.0.0.1:5000/private": {"username": "` + RegistryUser + `", "password": "` + RegistryPassword + `"}}}
END
`

// TestCredentialProvider pulls from a registry with authentication by a plugin that receives tokens of the service
// accounts of pods.
func TestCredentialProvider(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin := filepath.Join(dir, "by-account")
	require.NoError(t, os.WriteFile(plugin, []byte(providerScript), 0o755))
	config := filepath.Join(dir, "providers.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: by-account
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["127.0.0.1:5000/private"]
  defaultCacheDuration: 0s
  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/pull]
`), 0o600))
	s := newNodeSuite(t, AgentOptions{Args: []string{"--image-credential-provider-config", config,
		"--image-credential-provider-bin-dir", dir}})
	s.start(t)
	// Since Kubernetes 1.33 a node may request tokens for these audiences only.
	s.plane.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: registry-tokens}
rules: [{apiGroups: [""], resources: [registry], verbs: [request-serviceaccounts-token-audience]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: registry-tokens}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: registry-tokens}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
`)
	ns := s.plane.Namespace(t, "providers")
	for name, annotation := range map[string]string{"reader": "as-reader", "broken": "broken"} {
		_, err := s.plane.Client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &v1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.com/pull": annotation,
				"other": "not for the plugin"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	run := func(name, account string, policy v1.PullPolicy) {
		t.Helper()
		container := Sh("main", Forever)
		container.Image, container.ImagePullPolicy = s.Registry.Image("private/busybox:1"), policy
		pod := MakePod(name, Main(container))
		pod.Namespace = ns
		pod.Spec.ServiceAccountName, pod.Spec.NodeName = account, NodeName
		_, err := s.plane.Client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	fails := func(want string) Condition {
		return func(pod *v1.Pod) error {
			if c := Status(pod, "main"); c != nil && c.State.Waiting != nil &&
				strings.Contains(c.State.Waiting.Message, want) {
				return nil
			}
			return fmt.Errorf("statuses: %+v", pod.Status.ContainerStatuses)
		}
	}
	requests := func() (all []map[string]any) {
		data, err := os.ReadFile(plugin + ".requests")
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			var one map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &one))
			all = append(all, one)
		}
		return all
	}

	run("without", "default", v1.PullAlways)
	s.plane.AwaitPod(t, ns, "without", within, fails("pull access denied"))
	assert.Empty(t, requests(), "its account has no annotation")

	run("first", "reader", v1.PullAlways)
	s.plane.AwaitPod(t, ns, "first", within, Running)
	run("second", "reader", v1.PullAlways)
	s.plane.AwaitPod(t, ns, "second", within, Running)
	made := requests()
	require.Len(t, made, 1, "the answer for the account is cached")
	assert.Equal(t, "127.0.0.1:5000/private/busybox", made[0]["image"])
	assert.Equal(t, map[string]any{"example.com/pull": "as-reader"}, made[0]["serviceAccountAnnotations"])
	review, err := s.plane.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: made[0]["serviceAccountToken"].(string),
			Audiences: []string{"registry"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.True(t, review.Status.Authenticated, review.Status.Error)
	assert.Equal(t, "system:serviceaccount:"+ns+":reader", review.Status.User.Username)

	// The image is on the node. The account has the right to it, and another one has not (KEP-2535).
	pulls := s.Registry.Pulls("private/busybox:1")
	run("third", "reader", v1.PullIfNotPresent)
	s.plane.AwaitPod(t, ns, "third", within, Running)
	assert.Equal(t, pulls, s.Registry.Pulls("private/busybox:1"), "no pull is needed")
	run("other", "default", v1.PullIfNotPresent)
	s.plane.AwaitPod(t, ns, "other", within, fails("pull access denied"))

	run("broken", "broken", v1.PullAlways)
	s.plane.AwaitPod(t, ns, "broken", within, fails(`credential provider "by-account": exit status 4`))
	log, err := os.ReadFile(s.agent.LogPath())
	require.NoError(t, err)
	assert.Contains(t, string(log), "no access for broken")
	for _, request := range requests() {
		assert.NotContains(t, string(log), request["serviceAccountToken"])
	}
	assert.NotContains(t, string(log), RegistryPassword)
	page, err := s.agent.Get("/metrics")
	require.NoError(t, err)
	assert.Contains(t, string(page), `kubelet_credential_provider_plugin_errors_total{plugin_name="by-account"}`)
}

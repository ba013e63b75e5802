package records

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

const (
	image = "registry.example/team/app:1"
	name  = "registry.example/team/app"
	ref   = "sha256:4f53"
)

// node is a root directory, with files as a kubelet writes them.
type node struct {
	t    testing.TB
	dir  string
	opts Options
	logs []string
}

func newNode(t testing.TB) *node {
	n := &node{t: t, dir: t.TempDir()}
	n.opts.Logger = funcr.New(func(_, args string) { n.logs = append(n.logs, args) }, funcr.Options{})
	return n
}

func (n *node) records() *Records {
	r, err := New(n.dir, n.opts)
	require.NoError(n.t, err)
	return r
}

func (n *node) path(kind, key string) string {
	return filepath.Join(n.dir, "image_manager", kind, fileName(key))
}

func (n *node) write(kind, key, content string) {
	path := n.path(kind, key)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(n.t, os.WriteFile(path, []byte(content), 0o600))
}

// typed returns the first fields of a file.
func typed(kind, version string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: "kubelet.config.k8s.io/" + version}
}

// intent writes an intent with the types of kubelet.
func (n *node) intent(image string) {
	data, err := json.Marshal(kubelet.ImagePullIntent{TypeMeta: typed("ImagePullIntent", "v1beta1"), Image: image})
	require.NoError(n.t, err)
	n.write("pulling", image, string(data)+"\n")
}

// record writes a record with the types of kubelet.
func (n *node) record(ref string, creds map[string]kubelet.ImagePullCredentials) {
	data, err := json.Marshal(kubelet.ImagePulledRecord{
		TypeMeta: typed("ImagePulledRecord", "v1beta1"), ImageRef: ref, CredentialMapping: creds,
		LastUpdatedTime: metav1.NewTime(time.Date(2024, 10, 21, 12, 26, 40, 0, time.UTC)),
	})
	require.NoError(n.t, err)
	n.write("pulled", ref, string(data)+"\n")
}

// recorded reads a record as kubelet does, strictly.
func (n *node) recorded(ref string) map[string]kubelet.ImagePullCredentials {
	n.t.Helper()
	data, err := os.ReadFile(n.path("pulled", ref))
	require.NoError(n.t, err)
	var r kubelet.ImagePulledRecord
	require.NoError(n.t, decode(data, &r))
	assert.Equal(n.t, typed("ImagePulledRecord", "v1beta1"), r.TypeMeta)
	assert.Equal(n.t, ref, r.ImageRef)
	return r.CredentialMapping
}

func secret(uid, namespace, hash string) Credential {
	return Credential{Secret: &Secret{UID: types.UID("uid-" + uid), Namespace: namespace, Name: "pull", Hash: hash}}
}

func account(uid, namespace string) Credential {
	return Credential{ServiceAccount: &ServiceAccount{UID: types.UID(uid), Namespace: namespace, Name: "builder"}}
}

func secretOf(uid, namespace, hash string) kubelet.ImagePullSecret {
	return kubelet.ImagePullSecret{UID: "uid-" + uid, Namespace: namespace, Name: "pull", CredentialHash: hash}
}

// The decisions are those of kubelet's tests, image_pull_manager_test.go.
func TestMayUse(t *testing.T) {
	type creds = map[string]kubelet.ImagePullCredentials
	secrets := func(list ...kubelet.ImagePullSecret) creds {
		return creds{name: {KubernetesSecrets: list}}
	}
	one := secrets(secretOf("1", "a", "h1"))
	accounts := creds{name: {KubernetesServiceAccounts: []kubelet.ImagePullServiceAccount{{UID: "1",
		Namespace: "a", Name: "builder"}}}}
	for about, c := range map[string]struct {
		policy   Policy
		image    string
		ref      string
		recorded creds // nil: no record
		intent   string
		pod      []Credential
		may      bool
		asked    bool  // for the credentials of the pod
		written  creds // nil: nothing
	}{
		"the same secret":                     {recorded: one, pod: []Credential{secret("1", "a", "h1")}, may: true, asked: true},
		"another tag":                         {recorded: one, image: name + ":2", pod: []Credential{secret("1", "a", "h1")}, may: true, asked: true},
		"no secret":                           {recorded: one, asked: true},
		"a credential of the node":            {recorded: one, pod: []Credential{{}}, asked: true},
		"the secret has another content":      {recorded: one, pod: []Credential{secret("1", "a", "h2")}, may: true, asked: true, written: secrets(secretOf("1", "a", "h2"))},
		"another UID":                         {recorded: one, pod: []Credential{secret("2", "a", "h2")}, asked: true},
		"another namespace":                   {recorded: one, pod: []Credential{secret("1", "b", "h2")}, asked: true},
		"another secret, the same content":    {recorded: one, pod: []Credential{secret("1", "b", "h1")}, may: true, asked: true, written: secrets(secretOf("1", "a", "h1"), secretOf("1", "b", "h1"))},
		"the second secret of the pod":        {recorded: one, pod: []Credential{secret("2", "a", "h2"), secret("1", "a", "h1")}, may: true, asked: true},
		"a secret for another image":          {recorded: one, image: "registry.example/team/other:1", pod: []Credential{secret("1", "a", "h1")}},
		"a record without credentials":        {recorded: creds{}, pod: []Credential{secret("1", "a", "h1")}},
		"a name without credentials":          {recorded: creds{name: {}}, pod: []Credential{secret("1", "a", "h1")}},
		"not present":                         {ref: "-"},
		"preloaded":                           {may: true},
		"preloaded, always verify":            {policy: AlwaysVerify},
		"being pulled":                        {intent: image, pod: []Credential{secret("1", "a", "h1")}},
		"being pulled under a short name":     {intent: "app", image: "docker.io/library/app:latest"},
		"another image is being pulled":       {intent: name + ":2", may: true},
		"being pulled, never verify":          {intent: image, policy: NeverVerify, may: true},
		"recorded, never verify":              {recorded: one, policy: NeverVerify, may: true},
		"all pods":                            {recorded: creds{name: {NodePodsAccessible: true}}, may: true},
		"all pods, always verify":             {recorded: creds{name: {NodePodsAccessible: true}}, policy: AlwaysVerify, may: true},
		"all pods, another name":              {recorded: creds{name: {NodePodsAccessible: true}}, image: "registry.example/team/other:1"},
		"hashes failed, the same secret":      {recorded: secrets(secretOf("1", "a", "")), pod: []Credential{secret("1", "a", "")}, may: true, asked: true},
		"hashes failed, another secret":       {recorded: secrets(secretOf("1", "a", "")), pod: []Credential{secret("1", "b", "")}, asked: true},
		"the same service account":            {recorded: accounts, pod: []Credential{account("1", "a")}, may: true, asked: true},
		"a service account was recreated":     {recorded: accounts, pod: []Credential{account("2", "a")}, asked: true},
		"a service account elsewhere":         {recorded: accounts, pod: []Credential{account("1", "b")}, asked: true},
		"a service account, another image":    {recorded: accounts, image: "registry.example/team/other:1", pod: []Credential{account("1", "a")}},
		"a secret in place of an account":     {recorded: accounts, pod: []Credential{secret("1", "a", "h1")}, asked: true},
		"a digest":                            {recorded: one, image: name + "@sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd", pod: []Credential{secret("1", "a", "h1")}, may: true, asked: true},
		"a name that is not valid":            {recorded: one, image: "registry.example/team/app:", pod: []Credential{secret("1", "a", "h1")}},
		"with a list, preloaded, not in it":   {policy: NeverVerifyAllowlistedImages},
		"with a list, in it and recorded":     {policy: NeverVerifyAllowlistedImages, image: "registry.example/public/app:1", recorded: one, may: true},
		"with a list, the same secret":        {policy: NeverVerifyAllowlistedImages, recorded: one, pod: []Credential{secret("1", "a", "h1")}, may: true, asked: true},
		"always verify, the same secret":      {policy: AlwaysVerify, recorded: one, pod: []Credential{secret("1", "a", "h1")}, may: true, asked: true},
		"always verify, being pulled":         {policy: AlwaysVerify, intent: image, pod: []Credential{secret("1", "a", "h1")}},
		"being pulled again, the same secret": {intent: image, recorded: one, pod: []Credential{secret("1", "a", "h1")}, may: true, asked: true},
	} {
		t.Run(about, func(t *testing.T) {
			n := newNode(t)
			n.opts.Policy = c.policy
			if c.policy == NeverVerifyAllowlistedImages {
				n.opts.Allowlist = []string{"registry.example/public/*"}
			}
			if c.recorded != nil {
				n.record(ref, c.recorded)
			}
			if c.intent != "" {
				n.intent(c.intent)
			}
			asked, id, named := false, ref, image
			if c.ref == "-" {
				id = ""
			}
			if c.image != "" {
				named = c.image
			}
			r := n.records()
			for range 2 { // from the file, and from memory
				decision, err := r.Decide(named, id, func() ([]Credential, error) { asked = true; return c.pod, nil })
				require.NoError(t, err)
				assert.Equal(t, c.may, decision.MayUse())
				assert.Equal(t, c.asked, asked)
			}
			want := c.recorded
			if c.written != nil {
				want = c.written
			}
			if len(want) > 0 {
				assert.Equal(t, want, n.recorded(ref))
			}
			assert.Empty(t, n.logs)
		})
	}
}

func TestCredentialsThatCannotBeRead(t *testing.T) {
	n := newNode(t)
	n.record(ref,
		map[string]kubelet.ImagePullCredentials{
			name: {KubernetesSecrets: []kubelet.ImagePullSecret{secretOf("1", "a", "h1")}}})
	broken := errors.New("no such secret")
	decision, err := n.records().Decide(image, ref, func() ([]Credential, error) { return nil, broken })
	assert.Equal(t, Undecided, decision)
	require.ErrorIs(t, err, broken)
}

// More than 100 secrets are recorded only by pulls; a recorded one still replaces itself.
func TestSecretsThatMatchAreBounded(t *testing.T) {
	n := newNode(t)
	r := n.records()
	pull := func(c Credential) {
		t.Helper()
		require.NoError(t, r.Intend(image))
		require.NoError(t, r.Pulled(image, ref, c))
	}
	for i := range maxMatched {
		pull(secret(string(rune('a'+i/10))+string(rune('a'+i%10)), "a", "h"))
	}
	may := func(c Credential) bool {
		decision, err := r.Decide(image, ref, func() ([]Credential, error) { return []Credential{c}, nil })
		require.NoError(t, err)
		return decision.MayUse()
	}
	assert.True(t, may(secret("new", "b", "h")))
	assert.Len(t, n.recorded(ref)[name].KubernetesSecrets, maxMatched)
	assert.True(t, may(secret("aa", "a", "changed")))
	assert.Contains(t, n.recorded(ref)[name].KubernetesSecrets, secretOf("aa", "a", "changed"))
	pull(secret("new", "b", "other"))
	assert.Len(t, n.recorded(ref)[name].KubernetesSecrets, maxMatched+1)
}

func TestDecisions(t *testing.T) {
	n := newNode(t)
	one := map[string]kubelet.ImagePullCredentials{
		name: {KubernetesSecrets: []kubelet.ImagePullSecret{secretOf("1", "a", "h1")}}}
	n.record(ref, one)
	n.write("pulled", "sha256:damaged", "{")
	n.write("pulling", "registry.example/damaged:1", "{")
	n.intent("registry.example/cut:1")
	r := n.records()
	for _, c := range []struct {
		image, ref string
		pod        []Credential
		want       Decision
	}{
		{image, "sha256:preloaded", nil, AllowedByPolicy},
		{image, ref, []Credential{secret("1", "a", "h1")}, AllowedByRecord},
		{image, ref, nil, MustPull},
		{"registry.example/cut:1", "sha256:cut", nil, MustPull},
		{image, "sha256:damaged", nil, Undecided},
		{"registry.example/damaged:1", "sha256:new", nil, Undecided},
		{name + ":", ref, nil, Undecided},
	} {
		got, err := r.Decide(c.image, c.ref, func() ([]Credential, error) { return c.pod, nil })
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s (%s)", c.image, c.ref)
	}
	intents, records := r.Counts()
	assert.Equal(t, []int{2, 2}, []int{intents, records}, "files that are damaged count")
}

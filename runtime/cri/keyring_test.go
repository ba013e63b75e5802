package cri

import (
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

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

func dockerConfigJSON(name, data string) v1.Secret {
	s := v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(data)}}
	s.Namespace, s.Name = "default", name
	return s
}

func dockercfg(name, data string) v1.Secret {
	s := v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(data)}}
	s.Namespace, s.Name = "default", name
	return s
}

func TestKeyringLookup(t *testing.T) {
	// Each entry's user is the location it was given under.
	locations := []string{
		"reg.example.com", "https://reg.example.com/v1/", "reg.example.com/team", "reg.example.com/team/app",
		"http://port.example.com:5000/v2/", "*.wild.example.com", "*.*.example.org/deep", "https://index.docker.io/v1/",
		"[fd00::1]:5000",
	}
	var secrets []v1.Secret
	for _, l := range locations {
		secrets = append(secrets, dockerConfigJSON(l, `{"auths":{"`+l+`":{"username":"`+l+`","password":"p"}}}`))
	}
	ring, err := newKeyring(secrets)
	require.NoError(t, err)
	tests := map[string][]string{
		"reg.example.com/team/app":     {"reg.example.com/team/app", "reg.example.com/team", "reg.example.com", "https://reg.example.com/v1/"},
		"reg.example.com/team/other":   {"reg.example.com/team", "reg.example.com", "https://reg.example.com/v1/"},
		"reg.example.com/else":         {"reg.example.com", "https://reg.example.com/v1/"},
		"reg.example.com:443/else":     nil,
		"port.example.com:5000/app":    {"http://port.example.com:5000/v2/"},
		"port.example.com/app":         nil,
		"a.wild.example.com/app":       {"*.wild.example.com"},
		"a.b.wild.example.com/app":     nil,
		"wild.example.com/app":         nil,
		"a.b.example.org/deep/app":     {"*.*.example.org/deep"},
		"a.b.example.org/app":          nil,
		"docker.io/library/busybox":    {"https://index.docker.io/v1/"},
		"unknown.example.net/a/b":      nil,
		"[fd00::1]:5000/app":           {"[fd00::1]:5000"},
		"index.docker.io/library/else": {"https://index.docker.io/v1/"},
	}
	for repository, want := range tests {
		t.Run(repository, func(t *testing.T) {
			var got []string
			for _, auth := range ring.lookup(repository) {
				got = append(got, auth.Username)
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestKeyringReads(t *testing.T) {
	tests := []struct {
		name       string
		secret     v1.Secret
		user, pass string
		err        string
	}{
		{name: "auth, padded", secret: dockerConfigJSON("s", `{"auths":{"r.io":{"auth":"dXNlcjpwYXNzOndvcmQ="}}}`), user: "user", pass: "pass:word"},
		{name: "auth, not padded", secret: dockerConfigJSON("s", `{"auths":{"r.io":{"auth":"dXNlcjpwYXNzOndvcmQ"}}}`), user: "user", pass: "pass:word"},
		{name: "auth wins", secret: dockerConfigJSON("s", `{"auths":{"r.io":{"username":"x","auth":"dTpw"}}}`), user: "u", pass: "p"},
		{name: "the old form", secret: dockercfg("s", `{"r.io":{"username":"u","password":"p","email":"e"}}`), user: "u", pass: "p"},
		{name: "no entries", secret: dockerConfigJSON("s", `{}`)},
		{name: "null", secret: dockerConfigJSON("s", `{"auths":{"r.io":null}}`)},
		{name: "another type", secret: v1.Secret{Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte("{")}}},
		{name: "not JSON", secret: dockerConfigJSON("s", `{"auths":{"r.io":{"password":"hush"`), err: "pull secret default/s: not a docker configuration"},
		{name: "not base64", secret: dockerConfigJSON("s", `{"auths":{"r.io":{"auth":"%%"}}}`), err: "pull secret default/s: not a docker configuration"},
		{name: "no colon", secret: dockerConfigJSON("s", `{"auths":{"r.io":{"auth":"dXNlcg=="}}}`), err: "pull secret default/s: not a docker configuration"},
		{name: "no registry", secret: dockerConfigJSON("s", `{"auths":{"/x":{"username":"u"}}}`), err: `pull secret default/s: "/x" is not a registry`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ring, err := newKeyring([]v1.Secret{tt.secret})
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			auths := ring.lookup("r.io/app")
			if tt.user == "" {
				assert.Empty(t, auths)
				return
			}
			require.Len(t, auths, 1)
			assert.Equal(t, tt.user, auths[0].Username)
			assert.Equal(t, tt.pass, auths[0].Password)
		})
	}
}

func TestOneBadSecretLeavesTheOthers(t *testing.T) {
	ring, err := newKeyring([]v1.Secret{dockercfg("bad", "["), dockercfg("good", `{"r.io":{"username":"u"}}`)})
	assert.EqualError(t, err, "pull secret default/bad: not a docker configuration")
	assert.Len(t, ring.lookup("r.io/app"), 1)
}

func TestNodeKeyring(t *testing.T) {
	ring, err := nodeKeyring("")
	assert.Empty(t, ring)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "config.json")
	ring, err = nodeKeyring(file)
	assert.Empty(t, ring)
	require.NoError(t, err, "it need not exist")

	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(`{"auths":{"r.io":{"auth":"dTpw"},"/x":{"auth":"dTpw"}},"credsStore":"desktop"}`)
	ring, err = nodeKeyring(file)
	assert.EqualError(t, err, `"/x" is not a registry`)
	assert.Len(t, ring.lookup("r.io/app"), 1, "the others are used")
	write(`{"auths":{"r.io":{"auth":"hush"}}}`)
	_, err = nodeKeyring(file)
	assert.EqualError(t, err, "not a docker configuration")
	write(strings.Repeat(" ", maxDockerConfig) + "{}")
	_, err = nodeKeyring(file)
	assert.ErrorIs(t, err, safefile.ErrTooLarge)
}

func FuzzKeyring(f *testing.F) {
	f.Add([]byte(`{"auths":{"r.io":{"auth":"dTpw"}}}`), "r.io/app")
	f.Add([]byte(`{"auths":{"https://[::1]:5/v1/x":{"username":"u"}}}`), "[::1]:5/x")
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		ring, _ := newKeyring([]v1.Secret{dockerConfigJSON("s", string(data))})
		for _, auth := range ring.lookup(repository) {
			if auth == nil {
				t.Fatal("a nil credential")
			}
		}
	})
}

// A pod names one secret again and again, and secrets have as many credentials as they have room for.
func TestManyPullSecrets(t *testing.T) {
	var auths []string
	for i := range maxCredentials/2 + 1000 {
		auths = append(auths, fmt.Sprintf(`"r%d.example.com":{"username":"u%[1]d"}`, i))
	}
	data := `{"auths":{` + strings.Join(auths, ",") + `}}`
	one := dockerConfigJSON("one", data)
	began := time.Now()
	ring, err := newKeyring(slices.Repeat([]v1.Secret{one}, 50_000))
	require.NoError(t, err)
	assert.Len(t, ring, len(auths))
	assert.Less(t, time.Since(began), 20*time.Second, "it is read once")

	ring, err = newKeyring([]v1.Secret{one, dockerConfigJSON("two", data), dockerConfigJSON("three", data)})
	require.EqualError(t, err, "pull secret default/two: there are more than 10000 credentials")
	assert.Len(t, ring, maxCredentials)
	assert.Len(t, ring.lookup("r0.example.com/app"), 2)
}

package credentials

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

func dockerConfigJSON(name, data string) v1.Secret {
	s := v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(data)}}
	s.Namespace, s.Name, s.UID = "default", name, types.UID("uid-"+name)
	return s
}

func dockercfg(name, data string) v1.Secret {
	s := v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(data)}}
	s.Namespace, s.Name, s.UID = "default", name, types.UID("uid-"+name)
	return s
}

func TestLocations(t *testing.T) {
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
			list, err := Secrets{}.Credentials(t.Context(), Request{Image: repository, Secrets: secrets})
			require.NoError(t, err)
			var got []string
			for _, c := range list {
				got = append(got, c.Username)
				assert.Equal(t, &Secret{UID: types.UID("uid-" + c.Username), Namespace: "default", Name: c.Username},
					c.Secret)
				assert.Nil(t, c.ServiceAccount)
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestSecrets(t *testing.T) {
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
			list, err := Secrets{}.Credentials(t.Context(), Request{Image: "r.io/app", Secrets: []v1.Secret{tt.secret}})
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				pod, node := Split(err)
				require.EqualError(t, pod, tt.err)
				require.NoError(t, node)
				return
			}
			require.NoError(t, err)
			if tt.user == "" {
				assert.Empty(t, list)
				return
			}
			require.Len(t, list, 1)
			assert.Equal(t, tt.user, list[0].Username)
			assert.Equal(t, tt.pass, list[0].Password)
		})
	}
}

func TestOneBadSecretLeavesTheOthers(t *testing.T) {
	list, err := Secrets{}.Credentials(t.Context(), Request{Image: "r.io/app",
		Secrets: []v1.Secret{dockercfg("bad", "["), dockercfg("good", `{"r.io":{"username":"u"}}`)}})
	assert.EqualError(t, err, "pull secret default/bad: not a docker configuration")
	assert.Len(t, list, 1)
}

func TestNodeConfig(t *testing.T) {
	req := Request{Image: "r.io/app"}
	list, err := NodeConfig("").Credentials(t.Context(), req)
	assert.Empty(t, list)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "config.json")
	source := NodeConfig(file)
	list, err = source.Credentials(t.Context(), req)
	assert.Empty(t, list)
	require.NoError(t, err, "it need not exist")

	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(`{"auths":{"r.io":{"auth":"dTpw"},"/x":{"auth":"dTpw"}},"credsStore":"desktop"}`)
	list, err = source.Credentials(t.Context(), req)
	assert.EqualError(t, err, `credentials of the node in `+file+`: "/x" is not a registry`)
	assert.Equal(t, []Credential{{Username: "u", Password: "p"}}, list, "the others are used")
	pod, node := Split(errors.Join(errors.New("of the pod"), err))
	require.EqualError(t, pod, "of the pod")
	require.EqualError(t, node, err.Error())
	write(`{"auths":{"r.io":{"auth":"hush"}}}`)
	_, err = source.Credentials(t.Context(), req)
	assert.EqualError(t, err, "credentials of the node in "+file+": not a docker configuration")
	write(strings.Repeat(" ", maxDockerConfig) + "{}")
	_, err = source.Credentials(t.Context(), req)
	assert.ErrorIs(t, err, safefile.ErrTooLarge)
}

// A pod names one secret again and again, and secrets have as many credentials as they have room for.
func TestManyPullSecrets(t *testing.T) {
	var auths []string
	for i := range maxCredentials/2 + 1000 {
		auths = append(auths, fmt.Sprintf(`"r%d.example.com":{"username":"u%[1]d"}`, i))
	}
	data := `{"auths":{` + strings.Join(auths, ",") + `}}`
	one := dockerConfigJSON("one", data)
	var ring keyring
	var err error
	took := testenv.CPUTime(t, func() { ring, err = newKeyring(slices.Repeat([]v1.Secret{one}, 50_000)) })
	require.NoError(t, err)
	assert.Len(t, ring, len(auths))
	assert.Less(t, took, 20*time.Second, "it is read once")

	ring, err = newKeyring([]v1.Secret{one, dockerConfigJSON("two", data), dockerConfigJSON("three", data)})
	require.EqualError(t, err, "pull secret default/two: there are more than 10000 credentials")
	assert.Len(t, ring, maxCredentials)
	assert.Len(t, ring.lookup("r0.example.com/app"), 2)
}

// Logins are bounded, and their sources are not: a record of a pull may name any of them.
func TestManyLogins(t *testing.T) {
	var secrets []v1.Secret
	for i := range 300 {
		secrets = append(secrets,
			dockerConfigJSON(fmt.Sprint(i), fmt.Sprintf(`{"auths":{"r.io":{"username":"u%d"}}}`, i/2)))
	}
	list, err := Secrets{}.Credentials(t.Context(), Request{Image: "r.io/app", Secrets: secrets})
	require.NoError(t, err)
	assert.Len(t, list, 2*maxTries)
	assert.Len(t, Distinct(list), maxTries)
	assert.Equal(t, "u0", list[1].Username)
	assert.Equal(t, "1", list[1].Secret.Name)
}

func TestJoin(t *testing.T) {
	of := func(err error, list ...Credential) Source {
		return SourceFunc(func(context.Context, Request) ([]Credential, error) { return list, err })
	}
	bad := &NodeError{errors.New("of the node")}
	a, b := Credential{Username: "a"}, Credential{Username: "b"}
	secret := Credential{Username: "a", Secret: &Secret{UID: "1"}}
	list, err := Join(of(errors.New("of the pod"), a, b), nil, of(bad, Credential{Username: "a"}, secret),
		of(nil, Credential{Username: "a", Secret: &Secret{UID: "1"}})).Credentials(t.Context(), Request{})
	assert.Equal(t, []Credential{a, b, secret}, list)
	require.EqualError(t, err, "of the pod\nof the node")
	pod, node := Split(err)
	require.EqualError(t, pod, "of the pod")
	require.EqualError(t, node, "of the node")
	pod, node = Split(fmt.Errorf("wrapped: %w", bad))
	require.NoError(t, pod)
	require.EqualError(t, node, "wrapped: of the node")
	pod, node = Split(nil)
	require.NoError(t, errors.Join(pod, node))
}

// The values are those of hashAuthConfig in kubelet 1.37.
func TestHash(t *testing.T) {
	for want, c := range map[string]Credential{
		"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a": {}, // of {}
		"cb54b00fb550d4a17c448149caa29f38f4d5a44fb87c752e43db8160af3a032a": {Username: "user", Password: "pass", Secret: &Secret{UID: "1"}},
		"70511fab8c125f161694707786e16ed1e09ccd18d3aa4bafa5b8d19e23da7848": {Username: "user", Password: "pass", Email: "user@example.com"},
		"7b0b049a47ca5d46af00d1ad6348877c3bb580724ddc73d7c38a629c61a501a6": {Username: "<a>&", Password: "\xff\u2028"},
	} {
		assert.Equal(t, want, c.Hash())
	}
}

func TestNoPasswordInText(t *testing.T) {
	for _, c := range []Credential{
		{Username: "u", Password: "hush"}, {Username: "u", Password: "hush", Secret: &Secret{Namespace: "ns", Name: "s"}},
		{Username: "u", Password: "hush", ServiceAccount: &ServiceAccount{Namespace: "ns", Name: "sa"}},
	} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			for _, value := range []any{c, &c, []Credential{c}} {
				text := fmt.Sprintf(format, value)
				assert.NotContains(t, text, "hush", format)
			}
		}
	}
	assert.Equal(t,
		`"u" of secret ns/s`, fmt.Sprint(Credential{Username: "u", Secret: &Secret{Namespace: "ns", Name: "s"}}))
}

func FuzzDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"r.io":{"auth":"dTpw"}}}`), "r.io/app")
	f.Add([]byte(`{"auths":{"https://[::1]:5/v1/x":{"username":"u"}}}`), "[::1]:5/x")
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		list, err := Secrets{}.Credentials(t.Context(), Request{Image: repository,
			Secrets: []v1.Secret{dockerConfigJSON("s", string(data)), dockercfg("t", string(data))}})
		for _, c := range list {
			if c.Secret == nil {
				t.Fatal("a credential without its secret")
			}
		}
		if _, node := Split(err); node != nil {
			t.Fatal("an error of the node for a secret")
		}
	})
}

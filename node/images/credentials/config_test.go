package credentials

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	"k8s.io/utils/ptr"
)

const configHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

func providerYAML(name string) string {
	return "- name: " + name + `
  matchImages: ["*.example.com"]
  defaultCacheDuration: 5m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`
}

func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	names := func(c Config) (out []string) {
		for i := range c.Providers {
			out = append(out, c.Providers[i].Name)
		}
		return out
	}
	one := write("b.yaml", configHead+providerYAML("b1")+providerYAML("b2"))
	config, err := ReadConfig(one)
	require.NoError(t, err)
	assert.Equal(t, []string{"b1", "b2"}, names(config))
	assert.Equal(t, configv1.CredentialProvider{
		Name: "b1", MatchImages: []string{"*.example.com"}, DefaultCacheDuration: &metav1.Duration{
			Duration: 5 * time.Minute},
		APIVersion: "credentialprovider.kubelet.k8s.io/v1",
	}, config.Providers[0])
	require.NoError(t, config.Validate())

	write("a.json", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"CredentialProviderConfig","providers":[{"name":"a","matchImages":["r.io"],
		"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1alpha1","args":["x"],"env":[{"name":"A","value":"b"}]}]}`)
	write("c.yml", configHead+providerYAML("c"))
	write("d.txt", "[")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o755))
	all, err := ReadConfig(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b1", "b2", "c"}, names(all))
	require.NoError(t, all.Validate())
	assert.NotEqual(t, config.Hash, all.Hash)
	assert.Regexp(t, "^sha256:[0-9a-f]{64}$", all.Hash)

	twice := write("e.yaml", configHead+providerYAML("a"))
	_, err = ReadConfig(dir)
	require.EqualError(t, err, twice+`: duplicate provider name "a", which is also in `+filepath.Join(dir, "a.json"))

	_, err = ReadConfig(t.TempDir())
	require.ErrorContains(t, err, "no file ends with .json, .yaml or .yml")
	_, err = ReadConfig(filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)

	for text, want := range map[string]string{
		"{":                                   "yaml",
		"":                                    `kind "" of apiVersion ""`,
		"[]":                                  "cannot unmarshal",
		"apiVersion: v1\nkind: Pod\n":         `kind "Pod" of apiVersion "v1": must be CredentialProviderConfig of kubelet.config.k8s.io/v1`,
		configHead + "- nmae: x\n":            `unknown field "providers[0].nmae"`,
		configHead + "- name: x\n  name: y\n": "already",
		strings.Replace(configHead, "v1", "v1beta1", 1) + providerYAML("x") +
			"  tokenAttributes: {}\n": `provider "x": tokenAttributes need the apiVersion kubelet.config.k8s.io/v1`,
	} {
		path := write("bad.txt", text)
		_, err := ReadConfig(path)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, path, text)
	}
}

func validProvider() configv1.CredentialProvider {
	return configv1.CredentialProvider{
		Name: "test", MatchImages: []string{"*.example.com"}, DefaultCacheDuration: &metav1.Duration{
			Duration: time.Minute}, APIVersion: "credentialprovider.kubelet.k8s.io/v1",
	}
}

func withTokens() configv1.CredentialProvider {
	p := validProvider()
	p.TokenAttributes = &configv1.ServiceAccountTokenAttributes{
		ServiceAccountTokenAudience: "registry", CacheType: configv1.ServiceAccountServiceAccountTokenCacheType,
		RequireServiceAccount:                ptr.To(true),
		RequiredServiceAccountAnnotationKeys: []string{"example.com/Role"},
		OptionalServiceAccountAnnotationKeys: []string{"tenant"},
	}
	return p
}

func TestValidate(t *testing.T) {
	require.NoError(t, Config{Providers: []configv1.CredentialProvider{withTokens()}}.Validate())
	require.EqualError(t, Config{}.Validate(), "providers: Required value: at least one provider is required")
	twice := Config{Providers: []configv1.CredentialProvider{validProvider(), validProvider()}}
	require.EqualError(t, twice.Validate(), `providers[test].name: Duplicate value: "test"`)
	for _, tt := range []struct {
		edit func(*configv1.CredentialProvider)
		want string
	}{
		{func(p *configv1.CredentialProvider) { p.Name = "" }, "providers[0].name: Required value"},
		{func(p *configv1.CredentialProvider) { p.Name = ".." }, "providers[..].name: Invalid value"},
		{func(p *configv1.CredentialProvider) { p.Name = "a/b" }, "must contain neither '/' nor spaces"},
		{func(p *configv1.CredentialProvider) { p.Name = "a b" }, "must contain neither '/' nor spaces"},
		{func(p *configv1.CredentialProvider) { p.APIVersion = "" }, "providers[test].apiVersion: Required value"},
		{func(p *configv1.CredentialProvider) { p.APIVersion = "v1" }, `providers[test].apiVersion: Unsupported value: "v1": supported values: "credentialprovider.kubelet.k8s.io/v1", `},
		{func(p *configv1.CredentialProvider) { p.APIVersion = "credentialprovider.kubelet.k8s.io/v1beta1" }, "providers[test].tokenAttributes: Forbidden"},
		{func(p *configv1.CredentialProvider) { p.MatchImages = nil }, "providers[test].matchImages: Required value"},
		{func(p *configv1.CredentialProvider) { p.MatchImages = []string{"r.io", "r.io:*"} }, `providers[test].matchImages[1]: Invalid value: "r.io:*"`},
		{func(p *configv1.CredentialProvider) { p.DefaultCacheDuration = nil }, "providers[test].defaultCacheDuration: Required value"},
		{func(p *configv1.CredentialProvider) { p.DefaultCacheDuration.Duration = -1 }, "providers[test].defaultCacheDuration: Invalid value"},
		{func(p *configv1.CredentialProvider) { p.TokenAttributes.ServiceAccountTokenAudience = "" }, "tokenAttributes.serviceAccountTokenAudience: Required value"},
		{func(p *configv1.CredentialProvider) { p.TokenAttributes.RequireServiceAccount = nil }, "tokenAttributes.requireServiceAccount: Required value"},
		{func(p *configv1.CredentialProvider) { p.TokenAttributes.RequireServiceAccount = ptr.To(false) }, "requiredServiceAccountAnnotationKeys: Forbidden"},
		{func(p *configv1.CredentialProvider) { p.TokenAttributes.CacheType = "" }, "tokenAttributes.cacheType: Required value"},
		{func(p *configv1.CredentialProvider) { p.TokenAttributes.CacheType = "Pod" }, `tokenAttributes.cacheType: Unsupported value: "Pod"`},
		{func(p *configv1.CredentialProvider) {
			p.TokenAttributes.OptionalServiceAccountAnnotationKeys = []string{"a", "a"}
		}, `optionalServiceAccountAnnotationKeys[1]: Duplicate value: "a"`},
		{func(p *configv1.CredentialProvider) {
			p.TokenAttributes.OptionalServiceAccountAnnotationKeys = []string{"a b"}
		}, `optionalServiceAccountAnnotationKeys[0]: Invalid value: "a b"`},
		{func(p *configv1.CredentialProvider) {
			p.TokenAttributes.OptionalServiceAccountAnnotationKeys = []string{"example.com/Role"}
		}, "cannot be both required and optional"},
	} {
		p := withTokens()
		tt.edit(&p)
		config := Config{Providers: []configv1.CredentialProvider{p}}
		require.ErrorContains(t, config.Validate(), tt.want)
		_, err := NewPlugins(Options{Config: config, BinDir: "/"})
		require.ErrorContains(t, err, tt.want)
	}
	_, err := NewPlugins(Options{Config: Config{Providers: []configv1.CredentialProvider{validProvider()}}})
	require.EqualError(t, err, "credential providers: the directory of the executables is empty")
}

// The patterns of kubelet's documentation and tests of matchImages.
func TestMatchImages(t *testing.T) {
	for glob, want := range map[string]struct{ yes, no []string }{
		"123456789.dkr.ecr.us-east-1.amazonaws.com": {[]string{"123456789.dkr.ecr.us-east-1.amazonaws.com/app"}, []string{"1.dkr.ecr.us-east-1.amazonaws.com/app"}},
		"*.azurecr.io":            {[]string{"a.azurecr.io/app"}, []string{"azurecr.io/app", "a.b.azurecr.io/app", "a.azurecr.io:443/app"}},
		"*.*.registry.io":         {[]string{"a.b.registry.io/x/y"}, []string{"a.registry.io/x"}},
		"registry.io:8080/path":   {[]string{"registry.io:8080/path", "registry.io:8080/path/app", "registry.io:8080/pathology"}, []string{"registry.io/path", "registry.io:8080/other"}},
		"app*.k8s.io":             {[]string{"app1.k8s.io/x", "app.k8s.io/x"}, []string{"xapp.k8s.io/x"}},
		"k8s.*":                   {[]string{"k8s.io/x"}, []string{"k8s.io.uk/x"}},
		"docker.io":               {[]string{"docker.io/library/busybox"}, []string{"index.docker.io/library/busybox"}},
		"[::1]:5000":              {[]string{"[::1]:5000/app"}, []string{"[::2]:5000/app"}},
		"r.io/v1/":                {[]string{"r.io/v1/app"}, []string{"r.io/app"}},
		"https://registry.io":     {nil, []string{"registry.io/app"}}, // as in kubelet
		"a?.io/":                  {nil, []string{"ab.io/app"}},       // "?" begins a query
		"gcr.io/etcd-development": {[]string{"gcr.io/etcd-development/etcd"}, []string{"gcr.io/other"}},
	} {
		location, err := patternOf(glob)
		require.NoError(t, err, glob)
		for _, image := range want.yes {
			assert.True(t, locationCovers(location, image), "%s: %s", glob, image)
		}
		for _, image := range want.no {
			assert.False(t, locationCovers(location, image), "%s: %s", glob, image)
		}
	}
}

func TestFindPlugins(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("executables have an extension")
	}
	dir := t.TempDir()
	config := Config{Providers: []configv1.CredentialProvider{{Name: "absent"}, {Name: "there"}, {Name: "text"}}}
	require.ErrorContains(t, config.FindPlugins(filepath.Join(dir, "absent")), "directory of credential providers: ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "there"), nil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), nil, 0o644))
	err := config.FindPlugins(dir)
	require.ErrorContains(t, err, `credential provider "absent": `)
	require.ErrorContains(t, err, `credential provider "text": `)
	require.NotContains(t, err.Error(), "there")
	require.ErrorContains(t, config.FindPlugins(filepath.Join(dir, "there")), "not a directory")
	config.Providers = slices.Delete(config.Providers, 2, 3)[1:]
	require.NoError(t, config.FindPlugins(dir))
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(configHead + providerYAML("a")))
	f.Add([]byte(configHead + providerYAML("a") + "  tokenAttributes: {cacheType: Token, requireServiceAccount: " +
		"true, serviceAccountTokenAudience: a}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		providers, err := decodeConfig(data)
		if err != nil {
			return
		}
		config := Config{Providers: providers}
		valid := config.Validate()
		if _, err := NewPlugins(Options{Config: config, BinDir: "/"}); (err == nil) != (valid == nil) {
			t.Fatal(valid, err)
		}
	})
}

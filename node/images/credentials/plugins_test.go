package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kubelet/config/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// rig is Plugins whose plugins are functions.
type rig struct {
	*Plugins
	mu    sync.Mutex
	calls []providerv1.CredentialProviderRequest
	// answer returns the answer of the plugin of the name.
	answer func(ctx context.Context, name string, req providerv1.CredentialProviderRequest) (any, error)
	lines  []string
	done   []PluginExecution
}

func (r *rig) executed(m runtime.Measurement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, m.(PluginExecution))
}

func newRig(t *testing.T, accounts ServiceAccounts, providers ...configv1.CredentialProvider) *rig {
	t.Helper()
	r := &rig{}
	log := funcr.New(func(_, args string) { r.lines = append(r.lines, args) }, funcr.Options{})
	p, err := NewPlugins(Options{Config: Config{Providers: providers}, BinDir: "/absent", ServiceAccounts: accounts,
		Observer: runtime.Observer{Logger: log, Measure: r.executed, NonBlocking: true}})
	require.NoError(t, err)
	r.Plugins = p
	p.execute = func(ctx context.Context, e execution) ([]byte, string, error) {
		var req providerv1.CredentialProviderRequest
		if err := json.Unmarshal(e.input, &req); err != nil {
			return nil, "", err
		}
		r.mu.Lock()
		r.calls = append(r.calls, req)
		r.mu.Unlock()
		got, err := r.answer(ctx, e.provider.Name, req)
		if err != nil {
			return nil, "stderr with " + req.ServiceAccountToken, err
		}
		data, err := json.Marshal(got)
		return data, "", err
	}
	return r
}

func answerOf(t providerv1.PluginCacheKeyType, lifetime *metav1.Duration,
	auth map[string]providerv1.AuthConfig) providerv1.CredentialProviderResponse {
	return providerv1.CredentialProviderResponse{
		TypeMeta: metav1.TypeMeta{Kind: "CredentialProviderResponse",
			APIVersion: providerv1.SchemeGroupVersion.String()},
		CacheKeyType: t, CacheDuration: lifetime, Auth: auth,
	}
}

func login1(user string) map[string]providerv1.AuthConfig {
	return map[string]providerv1.AuthConfig{"*.example.com": {Username: user, Password: "p"}}
}

// users returns the usernames for the image.
func (r *rig) users(t *testing.T, image string, pod *v1.Pod) (out []string) {
	t.Helper()
	list, err := r.Credentials(t.Context(), Request{Image: image, Pod: pod})
	require.NoError(t, err)
	for _, c := range list {
		out = append(out, c.Username)
	}
	return out
}

// The plugin decides what an answer is for and how long it lasts.
func TestCacheOfAnswers(t *testing.T) {
	const a, b, other = "a.example.com/x", "a.example.com/y", "b.example.com/x"
	for name, tt := range map[string]struct {
		scope    providerv1.PluginCacheKeyType
		lifetime *metav1.Duration
		byDef    time.Duration
		// calls after requests for a, b and other; and for all again; and again after 90 s
		first, second, third int
	}{
		"image":            {providerv1.ImagePluginCacheKeyType, nil, time.Minute, 3, 3, 6},
		"registry":         {providerv1.RegistryPluginCacheKeyType, nil, time.Minute, 2, 2, 4},
		"global":           {providerv1.GlobalPluginCacheKeyType, nil, time.Minute, 1, 1, 2},
		"longer":           {providerv1.GlobalPluginCacheKeyType, &metav1.Duration{Duration: 2 * time.Minute}, time.Minute, 1, 1, 1},
		"not at all":       {providerv1.GlobalPluginCacheKeyType, &metav1.Duration{}, time.Minute, 3, 6, 9},
		"negative":         {providerv1.GlobalPluginCacheKeyType, &metav1.Duration{Duration: -time.Minute}, time.Minute, 3, 6, 9},
		"no default":       {providerv1.GlobalPluginCacheKeyType, nil, 0, 3, 6, 9},
		"longer than ever": {providerv1.ImagePluginCacheKeyType, &metav1.Duration{Duration: 1<<63 - 1}, 0, 3, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := validProvider()
				p.DefaultCacheDuration.Duration = tt.byDef
				r := newRig(t, nil, p)
				r.answer = func(context.Context, string, providerv1.CredentialProviderRequest) (any, error) {
					return answerOf(tt.scope, tt.lifetime, login1("u")), nil
				}
				all := func() int {
					for _, image := range []string{a, b, other} {
						assert.Equal(t, []string{"u"}, r.users(t, image, nil))
					}
					return len(r.calls)
				}
				assert.Equal(t, tt.first, all())
				assert.Equal(t, tt.second, all())
				time.Sleep(90 * time.Second)
				assert.Equal(t, tt.third, all())
			})
		})
	}
}

// Requests of 50 pods for one image execute the plugin once, and for one registry a few times.
func TestConcurrentRequests(t *testing.T) {
	for images, most := range map[int]int{1: 1, 50: maxExecutions} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil, validProvider())
			running, peak := 0, 0
			r.answer = func(context.Context, string, providerv1.CredentialProviderRequest) (any, error) {
				r.mu.Lock()
				running++
				peak = max(peak, running)
				r.mu.Unlock()
				time.Sleep(10 * time.Second)
				r.mu.Lock()
				running--
				r.mu.Unlock()
				return answerOf(providerv1.RegistryPluginCacheKeyType, nil, login1("u")), nil
			}
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(
					func() { assert.Equal(t, []string{"u"}, r.users(t, fmt.Sprint("r.example.com/", i%images), nil)) })
			}
			wg.Wait()
			assert.Len(t, r.calls, most)
			assert.LessOrEqual(t, peak, maxExecutions)
		})
	}
}

// A caller that gives up does not take the execution from the others.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, validProvider())
		r.answer = func(ctx context.Context, _ string, _ providerv1.CredentialProviderRequest) (any, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Second):
				return answerOf(providerv1.ImagePluginCacheKeyType, nil, login1("u")), nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := r.Credentials(ctx, Request{Image: "r.example.com/app"})
			first <- err
		}()
		synctest.Wait()
		second := make(chan []string, 1)
		go func() { second <- r.users(t, "r.example.com/app", nil) }()
		synctest.Wait()
		cancel()
		require.EqualError(t, <-first, `credential provider "test": context canceled`)
		assert.Equal(t, []string{"u"}, <-second)
		assert.Empty(t, r.lines, "it is no failure of the plugin")
	})
}

// All plugins that match are executed, and the most specific credential comes first whoever returned it.
func TestOrderOfPlugins(t *testing.T) {
	var providers []configv1.CredentialProvider
	for _, name := range []string{"one", "two", "elsewhere", "bad"} {
		p := validProvider()
		if p.Name = name; name == "elsewhere" {
			p.MatchImages = []string{"registry.io"}
		}
		providers = append(providers, p)
	}
	r := newRig(t, nil, providers...)
	r.answer = func(_ context.Context, name string, _ providerv1.CredentialProviderRequest) (any, error) {
		switch name {
		case "one":
			return answerOf(providerv1.ImagePluginCacheKeyType, nil, map[string]providerv1.AuthConfig{
				"r.example.com": {Username: "one"}, "*.example.com": {Username: "wild"}, "registry.io": {Username: "never"}, "/x": {Username: "never"},
			}), nil
		case "two":
			return answerOf(providerv1.ImagePluginCacheKeyType, nil,
				map[string]providerv1.AuthConfig{"r.example.com/team": {Username: "longest"},
					"r.example.com": {Username: "two"}}), nil
		default:
			return nil, errors.New("exit status 1")
		}
	}
	list, err := r.Credentials(t.Context(), Request{Image: "r.example.com/team/app"})
	pod, node := Split(err)
	require.EqualError(t, pod, `credential provider "bad": exit status 1`)
	require.EqualError(t, node, `credential provider "one": "/x" is not a registry`)
	var users []string
	for _, c := range list {
		users = append(users, c.Username)
	}
	assert.Equal(t, []string{"longest", "one", "two", "wild"}, users)
	require.Len(t, r.done, 3)
	assert.Equal(t, "bad", r.done[2].Provider)
	require.EqualError(t, r.done[2].Err, "exit status 1")
}

func TestResponses(t *testing.T) {
	const head = `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse"`
	for text, want := range map[string]string{
		head + `,"cacheKeyType":"Image"}`: "",
		head +
			`,"cacheKeyType":"Global","cacheDuration":"5m","auth":{"r.io":{"username":"u","password":"p"},"x":null}}`: "",
		``:                                  "its output is not a CredentialProviderResponse in JSON",
		`u`:                                 "its output is not a CredentialProviderResponse in JSON",
		head + `,"cacheKeyType":"Image"}{}`: "its output is not a CredentialProviderResponse in JSON",
		`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1","kind":"CredentialProviderResponse"}`: `its output has the kind "CredentialProviderResponse" of "credentialprovider.kubelet.k8s.io/v1beta1"`,
		head + `}`:                        `its output has the cacheKeyType ""`,
		head + `,"cacheKeyType":"image"}`: `its output has the cacheKeyType "image"`,
		head +
			`,"cacheKeyType":"Image","token":"hush"}`: "fields that are unknown, duplicate or of the wrong type",
		head +
			`,"cacheKeyType":"Image","Auth":{}}`: "fields that are unknown",
		head + `,"cacheKeyType":"Image","cacheDuration":5}`:                                     "of the wrong type",
		head + `,"cacheKeyType":"Image","auth":{"r.io":{"password":"hush","password":"hush"}}}`: "duplicate",
	} {
		_, err := decodeResponse([]byte(text), "credentialprovider.kubelet.k8s.io/v1")
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "hush")
	}
}

// accounts has one service account of each name.
type accounts struct {
	mu       sync.Mutex
	list     map[string]*v1.ServiceAccount
	tokens   int
	lifetime int64
	requests []*authenticationv1.TokenRequest
}

func (a *accounts) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	if got := a.list[namespace+"/"+name]; got != nil {
		return got, nil
	}
	return nil, fmt.Errorf("serviceaccounts %q not found", name)
}

func (a *accounts) Token(_ context.Context, _, account string,
	req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if account == "refused" {
		return nil, errors.New("forbidden")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens++
	a.requests = append(a.requests, req.DeepCopy())
	got := req.DeepCopy()
	got.Spec.ExpirationSeconds = &a.lifetime
	got.Status.Token = fmt.Sprint("token-", a.tokens)
	return got, nil
}

func account(name, uid string, annotations map[string]string) *v1.ServiceAccount {
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid),
		Annotations: annotations}}
}

func podOf(name, serviceAccount string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.ServiceAccountName = serviceAccount
	return p
}

// numbers makes the plugin answer with the number of the call.
func (r *rig) numbers(lifetime *metav1.Duration) {
	r.answer = func(_ context.Context, _ string, _ providerv1.CredentialProviderRequest) (any, error) {
		return answerOf(providerv1.RegistryPluginCacheKeyType, lifetime, login1(fmt.Sprint(len(r.calls)))), nil
	}
}

const image = "r.example.com/app"

// KEP-4412: the plugin receives a token of the pod and annotations, and its answers are those of the account.
func TestServiceAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &accounts{lifetime: 3600, list: map[string]*v1.ServiceAccount{
			"ns/a": account("a", "1", map[string]string{"example.com/Role": "reader", "other": "x"}),
			"ns/b": account("b", "2", map[string]string{"example.com/Role": "reader", "tenant": "t"}),
			"ns/c": account("c", "3", map[string]string{"tenant": "t"}),
		}}
		provider := withTokens()
		provider.DefaultCacheDuration.Duration = 10 * time.Hour
		r := newRig(t, api, provider)
		r.numbers(nil)
		assert.Equal(t, []string{"1"}, r.users(t, image, podOf("x", "a")))
		assert.Equal(t, []string{"1"}, r.users(t, image, podOf("y", "a")), "another pod of the account")
		assert.Equal(t, []string{"2"}, r.users(t, image, podOf("z", "b")), "another account")
		assert.Equal(t, providerv1.CredentialProviderRequest{
			TypeMeta: metav1.TypeMeta{Kind: "CredentialProviderRequest",
				APIVersion: providerv1.SchemeGroupVersion.String()},
			Image: image, ServiceAccountToken: "token-1", ServiceAccountAnnotations: map[string]string{
				"example.com/Role": "reader"},
		}, r.calls[0])
		assert.Equal(t, map[string]string{"example.com/Role": "reader", "tenant": "t"},
			r.calls[1].ServiceAccountAnnotations)
		assert.Equal(t, authenticationv1.TokenRequest{
			ObjectMeta: metav1.ObjectMeta{UID: "1"},
			Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{"registry"},
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
					Name: "x", UID: "uid-x"},
			},
		}, *api.requests[0])
		list, err := r.Credentials(t.Context(), Request{Image: image, Pod: podOf("x", "a")})
		require.NoError(t, err)
		assert.Equal(t,
			[]Credential{{Username: "1", Password: "p", ServiceAccount: &ServiceAccount{UID: "1",
				Namespace: "ns", Name: "a"}}}, list)

		assert.Empty(t, r.users(t, image, podOf("c", "c")), "the required annotation is missing")
		assert.Empty(t, r.users(t, image, podOf("none", "")), "no service account")
		assert.Empty(t, r.users(t, image, nil))
		assert.Len(t, r.calls, 2)
		_, err = r.Credentials(t.Context(), Request{Image: image, Pod: podOf("d", "d")})
		require.EqualError(t, err, `credential provider "test": service account ns/d: serviceaccounts "d" not found`)
		api.list["ns/refused"] = account("refused", "4", map[string]string{"example.com/Role": ""})
		_, err = r.Credentials(t.Context(), Request{Image: image, Pod: podOf("e", "refused")})
		require.EqualError(t, err, `credential provider "test": token of service account ns/refused: forbidden`)

		api.list["ns/a"] = account("a", "1", map[string]string{"example.com/Role": "writer"})
		assert.Equal(t, []string{"3"}, r.users(t, image, podOf("x", "a")), "another annotation")
		api.list["ns/a"] = account("a", "9", map[string]string{"example.com/Role": "writer"})
		assert.Equal(t, []string{"4"}, r.users(t, image, podOf("x", "a")), "a new account of the name")

		tokens := api.tokens
		time.Sleep(47 * time.Minute)
		assert.Equal(t, []string{"4"}, r.users(t, image, podOf("x", "a")))
		assert.Equal(t, tokens, api.tokens, "it is kept for 80 % of its lifetime")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"4"}, r.users(t, image, podOf("x", "a")), "for the account, whatever its token")
		assert.Equal(t, tokens+1, api.tokens)
	})
}

// With the cacheType Token an answer is that of one token.
func TestCacheTypeToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &accounts{lifetime: 3600,
			list: map[string]*v1.ServiceAccount{"ns/a": account("a", "1", map[string]string{"example.com/Role": "r"})}}
		p := withTokens()
		p.TokenAttributes.CacheType = configv1.TokenServiceAccountTokenCacheType
		p.DefaultCacheDuration.Duration = 10 * time.Hour
		r := newRig(t, api, p)
		r.answer = func(_ context.Context, _ string, req providerv1.CredentialProviderRequest) (any, error) {
			return answerOf(providerv1.GlobalPluginCacheKeyType, nil,
				map[string]providerv1.AuthConfig{"*.example.com": {Username: req.ServiceAccountToken,
					Password: req.ServiceAccountToken}}), nil
		}
		for range 2 {
			assert.Equal(t, []string{"token-1"}, r.users(t, image, podOf("x", "a")))
			assert.Equal(t, []string{"token-2"}, r.users(t, image, podOf("y", "a")))
		}
		assert.Len(t, r.calls, 2)
		time.Sleep(49 * time.Minute)
		assert.Equal(t, []string{"token-3"}, r.users(t, image, podOf("x", "a")))
	})
}

// A token that would be the credential of all pods of its account is refused, and is in no log.
func TestEchoOfAToken(t *testing.T) {
	api := &accounts{lifetime: 3600,
		list: map[string]*v1.ServiceAccount{"ns/a": account("a", "1", map[string]string{"example.com/Role": "r"})}}
	r := newRig(t, api, withTokens())
	r.answer = func(_ context.Context, _ string, req providerv1.CredentialProviderRequest) (any, error) {
		return answerOf(providerv1.ImagePluginCacheKeyType, nil,
			map[string]providerv1.AuthConfig{"*.example.com": {Password: req.ServiceAccountToken}}), nil
	}
	_, err := r.Credentials(t.Context(), Request{Image: image, Pod: podOf("x", "a")})
	require.EqualError(t, err,
		`credential provider "test": it has returned the service account token as a password, which needs the cacheType Token`)
	r.answer = func(context.Context, string, providerv1.CredentialProviderRequest) (any, error) {
		return nil, errors.New("exit status 1")
	}
	_, err = r.Credentials(t.Context(), Request{Image: image, Pod: podOf("x", "a")})
	require.Error(t, err)
	assert.Contains(t, r.lines[1], `"stderr"="stderr with <masked>"`)
	assert.NotContains(t, strings.Join(r.lines, "\n")+err.Error(), "token-1")
}

// An answer that is not to be cached is not shared between pods, also not while the plugin runs.
func TestNotSharedBetweenPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &accounts{lifetime: 3600,
			list: map[string]*v1.ServiceAccount{"ns/a": account("a", "1", map[string]string{"example.com/Role": "r"})}}
		r := newRig(t, api, withTokens())
		r.answer = func(_ context.Context, _ string, req providerv1.CredentialProviderRequest) (any, error) {
			time.Sleep(time.Second)
			return answerOf(providerv1.GlobalPluginCacheKeyType, &metav1.Duration{},
				login1("for "+req.ServiceAccountToken)), nil
		}
		var wg sync.WaitGroup
		seen := sync.Map{}
		for i := range 5 {
			wg.Go(func() { seen.Store(r.users(t, image, podOf(fmt.Sprint(i), "a"))[0], true) })
		}
		wg.Wait()
		n := 0
		seen.Range(func(any, any) bool { n++; return true })
		assert.Equal(t, 5, n)
	})
}

// Without an API server, a plugin that needs service accounts has nothing for pods with one, and one line in the log
// says so.
func TestWithoutAPIServer(t *testing.T) {
	p := withTokens()
	p.TokenAttributes.RequireServiceAccount, p.TokenAttributes.RequiredServiceAccountAnnotationKeys = ptr.To(false), nil
	r := newRig(t, nil, p)
	r.numbers(nil)
	for range 3 {
		assert.Empty(t, r.users(t, image, podOf("x", "a")))
	}
	require.Len(t, r.lines, 1)
	assert.Contains(t, r.lines[0], "A credential provider needs the service accounts of pods")
	list, err := r.Credentials(t.Context(), Request{Image: image, Pod: podOf("static", "")})
	require.NoError(t, err)
	assert.Equal(t, []Credential{{Username: "1", Password: "p"}}, list, "it does not require an account")
	assert.Empty(t, r.calls[0].ServiceAccountToken)
}

// The cache is bounded in entries and bytes: what expires first makes room.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache[int]
		for i := range 3 * maxCached {
			c.put(fmt.Sprintf("%04d", i), i, 10, time.Hour+time.Duration(i)*time.Second)
		}
		assert.Len(t, c.entries, maxCached)
		_, ok := c.get("0000")
		assert.False(t, ok)
		got, ok := c.get("absent", "2999")
		assert.True(t, ok)
		assert.Equal(t, 2999, got)
		c.put("big", 1, maxCachedBytes+1, time.Hour)
		assert.Len(t, c.entries, maxCached)
		c.put("big", 1, maxCachedBytes-100, 10*time.Hour)
		assert.LessOrEqual(t, c.bytes, maxCachedBytes)
		_, ok = c.get("big")
		assert.True(t, ok)
		c.put("big", 2, 10, time.Hour)
		time.Sleep(24 * time.Hour)
		c.put("last", 3, 1, time.Hour)
		assert.Len(t, c.entries, 1)
		assert.Equal(t, 5, c.bytes)
	})
}

func FuzzResponse(f *testing.F) {
	f.Add(
		[]byte(
			`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"*.example.com":{"username":"u"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := NewPlugins(Options{Config: Config{Providers: []configv1.CredentialProvider{validProvider()}},
			BinDir: "/"})
		if err != nil {
			t.Fatal(err)
		}
		p.execute = func(context.Context, execution) ([]byte, string, error) { return data, "", nil }
		list, err := p.Credentials(t.Context(), Request{Image: image})
		again, errAgain := p.Credentials(t.Context(), Request{Image: image})
		if len(list) != len(again) || (err == nil) != (errAgain == nil) {
			t.Fatal("another answer")
		}
	})
}

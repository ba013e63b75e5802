package images_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/images/credentials"
	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// registry is a runtime with one registry.
type registry struct {
	// takes is how long a pull takes, and fails returns its error. nil: it does not fail.
	takes time.Duration
	fails func(name, user string) error

	mu      sync.Mutex
	present map[string]bool
	// calls are the calls so far.
	calls []string
	// now is the number of pulls under way, and most the greatest number.
	now, most int
	pulling   map[string]int
	removed   time.Time
}

func newRegistry(present ...string) *registry {
	r := &registry{present: map[string]bool{}, pulling: map[string]int{}}
	for _, name := range present {
		r.present[name] = true
	}
	return r
}

func (r *registry) called(call ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, strings.TrimSpace(strings.Join(call, " ")))
}

// take returns and forgets the calls so far.
func (r *registry) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *registry) Find(ctx context.Context, name string) (*runtime.Image, error) {
	r.called("find", name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.present[strings.TrimPrefix(name, "id-")] {
		return nil, ctx.Err()
	}
	return &runtime.Image{ID: "id-" + strings.TrimPrefix(name, "id-"), Size: 1000}, nil
}

func (r *registry) Pull(ctx context.Context, name string, auth *runtime.ImageAuth) (string, error) {
	user := ""
	if auth != nil {
		user = auth.Username
	}
	r.called("pull", name, user)
	r.count(name, 1)
	defer r.count(name, -1)
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if r.fails != nil {
		if err := r.fails(name, user); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present[name] = true
	return "id-" + name, nil
}

func (r *registry) count(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += n
	r.most = max(r.most, r.now)
	if r.pulling[name] += n; r.pulling[name] > 1 {
		r.calls = append(r.calls, "twice at the same time: "+name)
	}
}

func (r *registry) Removed(string) time.Time { return r.removed }

// observer receives events, records and measurements.
type observer struct {
	mu      sync.Mutex
	events  []string
	records []runtime.Record
	pulls   []images.Pull
	ensured []string
}

func (o *observer) event(e runtime.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, strings.TrimSpace(e.FieldPath+" "+e.Reason+": "+e.Message))
}

func (o *observer) record(r runtime.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records = append(o.records, r)
}

func (o *observer) measure(m runtime.Measurement) {
	show := func(b *bool) string {
		if b == nil {
			return "-"
		}
		return fmt.Sprint(*b)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch m := m.(type) {
	case images.Pull:
		o.pulls = append(o.pulls, m)
	case images.Ensured:
		o.ensured = append(o.ensured, fmt.Sprint(m.Policy, " ", show(m.Present), " ", show(m.Pulled)))
	}
}

func newPuller(t *testing.T, o *observer, opts images.Options) *images.Puller {
	t.Helper()
	opts.Observer = runtime.Observer{NonBlocking: true, Event: o.event, Record: o.record, Measure: o.measure}
	p, err := images.New(opts)
	require.NoError(t, err)
	return p
}

// request is a request of the container "a" of a pod.
func request(r *registry, pod, image string, policy v1.PullPolicy, secrets ...v1.Secret) images.Request {
	spec := testpod.New(pod, testpod.UID(types.UID("uid-"+pod)),
		func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "a", Image: image}} })
	return images.Request{Pod: spec, Secrets: secrets, ImageRequest: runtime.ImageRequest{Image: image, Policy: policy,
		Container: "a", Store: r}}
}

// secret returns a pull secret for the users of a registry.
func secret(name, host string, users ...string) v1.Secret {
	var entries []string
	for i, user := range users {
		entries = append(entries, fmt.Sprintf(`"%s%s":{"username":%q,"password":"p"}`, host, strings.Repeat("/team", i),
			user))
	}
	s := v1.Secret{Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{` + strings.Join(entries, ",") + `}}`)}}
	s.Namespace, s.Name, s.UID = "default", name, types.UID("uid-"+name)
	return s
}

// The image of a process of the machine is a name: nothing is said of a pull.
func TestHostProcesses(t *testing.T) {
	for _, policy := range []v1.PullPolicy{v1.PullAlways, v1.PullIfNotPresent} {
		r, o := newRegistry(), &observer{}
		req := request(r, "web", "app", policy)
		req.HostProcesses = true
		image, err := newPuller(t, o, images.Options{}).Ensure(t.Context(), req)
		require.NoError(t, err)
		assert.NotNil(t, image)
		assert.Empty(t, o.events)
		assert.Empty(t, o.records)
	}
}

func TestPolicies(t *testing.T) {
	failed := func(text string) func(string, string) error {
		return func(string, string) error { return errors.New(text) }
	}
	tests := []struct {
		name    string
		image   string
		policy  v1.PullPolicy
		present []string
		fails   func(string, string) error
		want    []string
		ensured string
		event   string
		reason  string
		message string
	}{
		{name: "always, present", image: "app:1", policy: v1.PullAlways, present: []string{"app:1"},
			want: []string{"pull app:1", "find id-app:1"}, ensured: "Always - true",
			event: `Pulled: Successfully pulled image "app:1" in 0s (0s including waiting). Image size: 1000 bytes.`},
		{name: "if not present, present", image: "app:1", policy: v1.PullIfNotPresent, present: []string{"app:1"},
			want: []string{"find app:1"}, ensured: "IfNotPresent true false",
			event: `Pulled: Container image "app:1" already present on machine`},
		{name: "if not present, absent", image: "app:1", policy: v1.PullIfNotPresent,
			want: []string{"find app:1", "pull app:1", "find id-app:1"}, ensured: "IfNotPresent false true",
			event: `Pulled: Successfully pulled image "app:1" in 0s (0s including waiting). Image size: 1000 bytes.`},
		{name: "never, present", image: "app:1", policy: v1.PullNever, present: []string{"app:1"},
			want: []string{"find app:1"}, ensured: "Never true false",
			event: `Pulled: Container image "app:1" already present on machine`},
		{name: "never, absent", image: "app:1", policy: v1.PullNever, want: []string{"find app:1"}, ensured: "Never false false",
			event:  `ErrImageNeverPull: Container image "app:1" is not present with pull policy of Never`,
			reason: "ErrImageNeverPull", message: `Container image "app:1" is not present with pull policy of Never`},
		{name: "the default of latest", image: "app", want: []string{"pull app:latest", "find id-app:latest"}, ensured: "Always - true",
			event: `Pulled: Successfully pulled image "app" in 0s (0s including waiting). Image size: 1000 bytes.`},
		{name: "the default of a tag", image: "app:1", present: []string{"app:1"}, want: []string{"find app:1"}, ensured: "IfNotPresent true false",
			event: `Pulled: Container image "app:1" already present on machine`},
		{name: "a bad name", image: "App", policy: v1.PullAlways, ensured: "Always - -", reason: "InvalidImageName",
			event:   `InspectFailed: Failed to apply default image tag "App": couldn't parse image name "App": invalid reference format: repository name (library/App) must be lowercase`,
			message: `Failed to apply default image tag "App": couldn't parse image name "App": invalid reference format: repository name (library/App) must be lowercase`},
		{name: "failure", image: "app:1", policy: v1.PullAlways, fails: failed("no such manifest"), want: []string{"pull app:1"}, ensured: "Always - true",
			event: `Failed: Failed to pull image "app:1": no such manifest`, reason: "ErrImagePull",
			message: "no such manifest"},
		{name: "registry down", image: "app:1", policy: v1.PullAlways, fails: failed("RegistryUnavailable: dial tcp: refused"), want: []string{"pull app:1"}, ensured: "Always - true",
			event:  `Failed: Failed to pull image "app:1": RegistryUnavailable: dial tcp: refused`,
			reason: "RegistryUnavailable", message: "image pull failed for app:1 because the registry is " +
				"unavailable: dial tcp: refused"},
		{name: "bad signature", image: "app:1", policy: v1.PullAlways, fails: failed("SignatureValidationFailed: no key"), want: []string{"pull app:1"}, ensured: "Always - true",
			event:  `Failed: Failed to pull image "app:1": SignatureValidationFailed: no key`,
			reason: "SignatureValidationFailed", message: "image pull failed for app:1 because the signature " +
				"validation failed: no key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, o := newRegistry(tt.present...), &observer{}
				r.fails = tt.fails
				image, err := newPuller(t, o, images.Options{}).Ensure(t.Context(),
					request(r, "web", tt.image, tt.policy))
				synctest.Wait()
				assert.Equal(t, tt.want, r.take())
				assert.Equal(t, []string{tt.ensured}, o.ensured)
				assert.Equal(t, "spec.containers{a} "+tt.event, o.events[len(o.events)-1])
				if tt.reason == "" {
					require.NoError(t, err)
					assert.Equal(t, int64(1000), image.Size)
					return
				}
				var e *runtime.ImageError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, tt.reason, e.Reason)
				assert.Equal(t, tt.message, e.Message)
				assert.Nil(t, image)
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := newRegistry(), &observer{}
		r.fails = func(string, string) error { return errors.New("refused") }
		p := newPuller(t, o, images.Options{})
		ensure := func(pod string) *runtime.ImageError {
			t.Helper()
			_, err := p.Ensure(t.Context(), request(r, pod, "app:1", v1.PullIfNotPresent))
			var e *runtime.ImageError
			if err != nil {
				require.ErrorAs(t, err, &e)
			}
			return e
		}
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			e := ensure("web")
			require.Equal(t, "ErrImagePull: refused", e.Error())
			require.Equal(t, want*time.Second, e.RetryAfter)
			time.Sleep(time.Second)
			r.take()
			e = ensure("web")
			require.Equal(t, `ImagePullBackOff: Back-off pulling image "app:1": ErrImagePull: refused`, e.Error())
			require.True(t, e.BackingOff)
			require.Equal(t, (want-1)*time.Second, e.RetryAfter)
			require.Equal(t, []string{"find app:1"}, r.take())
			time.Sleep(e.RetryAfter)
		}
		assert.Equal(t, 10*time.Second, ensure("other").RetryAfter, "each pod has its own")
		r.fails = nil
		require.Nil(t, ensure("web"))
		// A success ends the back-off: the next failure begins a new one.
		clear(r.present)
		r.fails = func(string, string) error { return errors.New("refused") }
		assert.Equal(t, 10*time.Second, ensure("web").RetryAfter)
		// So does a long time without failure.
		time.Sleep(time.Hour)
		assert.Equal(t, 10*time.Second, ensure("web").RetryAfter)
	})
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name string
		opts images.Options
		want time.Duration
		most int
	}{
		{"no bound", images.Options{}, time.Minute, 3},
		{"two at once", images.Options{MaxParallel: 2}, 2 * time.Minute, 2},
		{"one in 10 s", images.Options{QPS: 0.1}, time.Minute + 20*time.Second, 3},
		{"one in 10 s, a burst of two", images.Options{QPS: 0.1, Burst: 2}, time.Minute + 10*time.Second, 3},
		{"serial", images.Options{Serial: true, MaxParallel: 5}, 3 * time.Minute, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				r.takes = time.Minute
				p, began := newPuller(t, &observer{}, tt.opts), time.Now()
				var wg sync.WaitGroup
				for _, image := range []string{"one:1", "two:1", "three:1"} {
					wg.Go(func() {
						_, err := p.Ensure(t.Context(), request(r, "web", image, v1.PullIfNotPresent))
						assert.NoError(t, err)
					})
				}
				wg.Wait()
				assert.Equal(t, tt.want, time.Since(began))
				assert.Equal(t, tt.most, r.most)
			})
		})
	}
}

func TestARateLimitedPullIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := newRegistry(), &observer{}
		p := newPuller(t, o, images.Options{QPS: 0.001})
		_, err := p.Ensure(t.Context(), request(r, "web", "one:1", v1.PullIfNotPresent))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.Ensure(ctx, request(r, "web", "two:1", v1.PullIfNotPresent))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotContains(t, strings.Join(o.events, "\n"), "Failed to pull")
		time.Sleep(time.Hour) // the bucket is full again
		_, err = p.Ensure(t.Context(), request(r, "web", "two:1", v1.PullIfNotPresent))
		require.NoError(t, err, "no back-off")
	})
}

func TestCredentialsAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.fails = func(_, user string) error {
			if user != "right" {
				return errors.New("denied")
			}
			return nil
		}
		p := newPuller(t, &observer{}, images.Options{})
		secrets := []v1.Secret{secret("one", "reg.example.com", "wrong"), secret("two", "reg.example.com", "right"),
			secret("three", "other.com", "other")}
		_, err := p.Ensure(t.Context(), request(r, "web", "reg.example.com/team/app:1", v1.PullAlways, secrets...))
		require.NoError(t, err)
		assert.Equal(t, []string{"pull reg.example.com/team/app:1 wrong", "pull reg.example.com/team/app:1 right",
			"find id-reg.example.com/team/app:1"}, r.take())

		_, err = p.Ensure(t.Context(), request(r, "web", "reg.example.com/team/app:2", v1.PullAlways, secrets[0],
			secret("broken", "[")))
		require.ErrorContains(t, err, "denied")
		assert.NotContains(t, err.Error(), "wrong", "no credential is in an error")
	})
}

// failing returns an error beside the credentials that it has.
type failing struct{ credentials.Secrets }

func (f failing) Credentials(ctx context.Context, req credentials.Request) ([]credentials.Credential, error) {
	found, _ := f.Secrets.Credentials(ctx, req)
	return found, errors.New("the plugin has failed")
}

func TestCredentialsThatCannotBeRead(t *testing.T) {
	r := newRegistry()
	p := newPuller(t, &observer{}, images.Options{Credentials: failing{}})
	_, err := p.Ensure(t.Context(), request(r, "web", "app:1", v1.PullAlways))
	require.NoError(t, err, "the registry requires none")
	r.fails = func(string, string) error { return errors.New("denied") }
	_, err = p.Ensure(t.Context(), request(r, "web", "app:1", v1.PullAlways))
	require.ErrorContains(t, err, "denied")
	require.ErrorContains(t, err, "the plugin has failed")
}

// Fifty pods need one image at the same time.
func TestOnePullForAll(t *testing.T) {
	for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullAlways} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, o := newRegistry(), &observer{}
				r.takes = time.Minute
				p, began := newPuller(t, o, images.Options{Serial: true}), time.Now()
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						image, err := p.Ensure(t.Context(), request(r, fmt.Sprintf("web-%d", i), "app:1", policy,
							secret("s", "docker.io", "me")))
						assert.NoError(t, err)
						assert.Equal(t, "id-app:1", image.ID)
					})
				}
				wg.Wait()
				synctest.Wait()
				assert.Equal(t, time.Minute, time.Since(began))
				assert.Equal(t, 1, strings.Count(strings.Join(r.take(), "\n"), "pull"))
				assert.Len(t, o.pulls, 50)
				shared := 0
				for _, pull := range o.pulls {
					if pull.Shared {
						shared++
					}
				}
				assert.Equal(t, 49, shared)
				assert.Equal(t, 50, strings.Count(strings.Join(o.events, "\n"), "Successfully pulled"))
			})
		})
	}
}

// A failed pull fails all that have shared it, and each has its back-off.
func TestSharedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := newRegistry(), &observer{}
		r.takes = time.Minute
		r.fails = func(string, string) error { return errors.New("refused") }
		p := newPuller(t, o, images.Options{})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				_, err := p.Ensure(t.Context(), request(r, fmt.Sprint("web-", i), "app:1", v1.PullIfNotPresent))
				var e *runtime.ImageError
				if assert.ErrorAs(t, err, &e) {
					assert.Equal(t, 10*time.Second, e.RetryAfter)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 1, strings.Count(strings.Join(r.take(), "\n"), "pull"))
	})
}

// The pod that has begun a pull is removed: another one begins it again.
func TestCancelledPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := newRegistry(), &observer{}
		r.takes = time.Minute
		p, began := newPuller(t, o, images.Options{}), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Ensure(ctx, request(r, "first", "app:1", v1.PullIfNotPresent))
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := p.Ensure(t.Context(), request(r, "second", "app:1", v1.PullIfNotPresent))
			assert.NoError(t, err)
		})
		time.Sleep(30 * time.Second)
		cancel()
		wg.Wait()
		assert.Equal(t, 90*time.Second, time.Since(began))
		assert.NotContains(t, strings.Join(o.events, "\n"), "Failed")
	})
}

// Requests with other credentials wait for the end of a pull, and need none if the image is there then.
func TestOtherCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.takes = time.Minute
		r.fails = func(_, user string) error {
			if user == "bad" {
				return errors.New("denied")
			}
			return nil
		}
		p, began := newPuller(t, &observer{}, images.Options{}), time.Now()
		var wg sync.WaitGroup
		for _, user := range []string{"bad", "good", "better"} {
			wg.Go(func() {
				_, err := p.Ensure(t.Context(), request(r, user, "app:1", v1.PullIfNotPresent,
					secret(user, "docker.io", user)))
				assert.Equal(t, user == "bad", err != nil, "%v", err)
			})
			synctest.Wait()
		}
		wg.Wait()
		assert.Equal(t, 2*time.Minute, time.Since(began))
		assert.Equal(t, 1, r.most)
	})
}

// The history has why an image is pulled, and how it ended.
func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := newRegistry(), &observer{}
		r.takes, r.removed = time.Minute, time.Now().Add(-time.Hour)
		p := newPuller(t, o, images.Options{})
		req := request(r, "web", "app:1", v1.PullIfNotPresent)
		_, err := p.Ensure(t.Context(), req)
		require.NoError(t, err)
		ref := runtime.RefOf(req.Pod)
		assert.Equal(t, []runtime.Record{
			{Pod: ref, Container: "a", Stage: runtime.StageDecided, Kind: runtime.KindPullImage, Message: "app:1", Reason: runtime.ReasonImageRemoved, Duration: time.Hour},
			{Pod: ref, Container: "a", Stage: runtime.StageDone, Kind: runtime.KindPullImage, Message: "app:1", Duration: time.Minute},
		}, o.records)
		r.fails = func(string, string) error { return errors.New("refused") }
		o.records = nil
		req = request(r, "web", "app:2", v1.PullAlways)
		_, err = p.Ensure(t.Context(), req)
		require.Error(t, err)
		assert.Equal(t, []runtime.Record{
			{Pod: ref, Container: "a", Stage: runtime.StageDecided, Kind: runtime.KindPullImage, Message: "app:2", Reason: runtime.ReasonPullAlways},
			{Pod: ref, Container: "a", Stage: runtime.StageDone, Kind: runtime.KindPullImage, Message: "app:2", Duration: time.Minute, Error: "refused"},
			{Pod: ref, Container: "a", Stage: runtime.StageDecided, Kind: runtime.KindBackOff, Reason: "ImagePullBackOff", Duration: 10 * time.Second},
		}, o.records)
	})
}

// newRecords returns records in a directory of the test, and what is being pulled by them.
func newRecords(t *testing.T) (r *records.Records, pulling func() int) {
	dir := t.TempDir()
	r, err := records.New(dir, records.Options{})
	require.NoError(t, err)
	return r, func() int {
		files, _ := filepath.Glob(filepath.Join(dir, "image_manager", "pulling", "*"))
		return len(files)
	}
}

// The runtime ends when it has stored the image, before it has answered: the image is no image of all pods.
func TestRuntimeEndsInAPull(t *testing.T) {
	r := newRegistry()
	kept, pulling := newRecords(t)
	p := newPuller(t, &observer{}, images.Options{Records: kept})
	r.fails = func(name, _ string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.present[name] = true
		return fmt.Errorf("the connection is closed: %w", runtime.ErrUnavailable)
	}
	_, err := p.Ensure(t.Context(), request(r, "owner", "r.io/app:1", v1.PullIfNotPresent, secret("s", "r.io", "me")))
	require.Error(t, err)
	assert.Equal(t, 1, pulling())
	_, err = p.Ensure(t.Context(), request(r, "other", "r.io/app:1", v1.PullNever))
	require.ErrorContains(t, err, "ErrImageNeverPull")
}

// A pull that has only waited leaves nothing.
func TestPullThatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.takes = time.Minute
		kept, pulling := newRecords(t)
		p := newPuller(t, &observer{}, images.Options{Records: kept, Serial: true})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Ensure(t.Context(), request(r, "first", "one:1", v1.PullIfNotPresent))
			assert.NoError(t, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Ensure(ctx, request(r, "second", "two:1", v1.PullIfNotPresent))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wg.Wait()
		assert.Zero(t, pulling())
	})
}

// A pod that shares a failed pull has the problems of its own secrets in its message, and not those of the pod that has
// begun it.
func TestProblemsAreThoseOfThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.takes = time.Minute
		r.fails = func(string, string) error { return errors.New("denied") }
		p := newPuller(t, &observer{}, images.Options{})
		broken := secret("broken", "r.io", "me")
		broken.Data[v1.DockerConfigJsonKey] = []byte("{")
		messages := make([]string, 3)
		var wg sync.WaitGroup
		for i, secrets := range [][]v1.Secret{{broken}, nil, {broken}} {
			wg.Go(func() {
				_, err := p.Ensure(t.Context(), request(r, fmt.Sprint("web-", i), "r.io/app:1", v1.PullIfNotPresent,
					secrets...))
				messages[i] = err.Error()
			})
			synctest.Wait()
		}
		wg.Wait()
		assert.Equal(t, 1, strings.Count(strings.Join(r.take(), "\n"), "pull"))
		assert.Contains(t, messages[0], "default/broken")
		assert.Equal(t, "ErrImagePull: denied", messages[1])
		assert.Contains(t, messages[2], "default/broken")
	})
}

// A store that panics harms no other pull of the image.
func TestStoreThatPanics(t *testing.T) {
	r := newRegistry()
	kept, pulling := newRecords(t)
	p := newPuller(t, &observer{}, images.Options{Records: kept})
	r.fails = func(string, string) error { panic("broken") }
	assert.Panics(t, func() { _, _ = p.Ensure(t.Context(), request(r, "web", "app:1", v1.PullIfNotPresent)) })
	assert.Equal(t, 1, pulling())
	r.fails = nil
	_, err := p.Ensure(t.Context(), request(r, "web", "app:1", v1.PullIfNotPresent))
	require.NoError(t, err)
}

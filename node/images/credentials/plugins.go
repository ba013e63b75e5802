package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	configv1 "k8s.io/kubelet/config/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of [Plugins].
type Options struct {
	// Config has the plugins, see [ReadConfig].
	Config Config
	// BinDir is the directory with the executables, which have the names of the providers. It is required.
	BinDir string
	// ServiceAccounts are for plugins with tokenAttributes. If nil, these have no credentials for pods with a service
	// account.
	ServiceAccounts ServiceAccounts
	// Observer receives the measurement [PluginExecution].
	runtime.Observer
}

// PluginExecution is the measurement of one execution of a plugin.
type PluginExecution struct {
	// Provider is the name of the plugin.
	Provider string
	// Took is the time from the start of the process to its end.
	Took time.Duration
	// Err is nil if the process has ended with the exit code 0.
	Err error
}

// IsMeasurement implements [runtime.Measurement].
func (PluginExecution) IsMeasurement() {}

// maxExecutions is the number of concurrent executions of a plugin. The answer to one may be that of the others that
// wait.
const maxExecutions = 10

// Plugins is the source of the credentials of credential provider plugins. Its methods are safe for concurrent use.
type Plugins struct {
	opts    Options
	plugins []*plugin
	execute func(context.Context, execution) (stdout []byte, stderr string, err error)

	reader        safefile.Reader // of the directory of the executables
	tokens        cache[string]
	tokenRequests flow.Shares[string]
}

// plugin is one plugin.
type plugin struct {
	config *configv1.CredentialProvider
	// images are the locations of matchImages.
	images []string
	// answers are cached for an image, a registry or all images, and an identity.
	answers cache[answer]
	runs    flow.Shares[answer]
	slots   chan struct{}
	// logged means that the absence of service accounts is in the log.
	logged atomic.Bool
}

// answer has the credentials in the response of a plugin. It is read-only.
type answer map[string]*dockerEntry

// NewPlugins returns the source. It validates the configuration, and does not check whether the executables exist, see
// [Config.FindPlugins].
func NewPlugins(opts Options) (*Plugins, error) {
	opts.Observer, _ = opts.Queued()
	errs := []error{opts.Config.Validate()}
	if opts.BinDir == "" {
		errs = append(errs, errors.New("the directory of the executables is empty"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("credential providers: %w", err)
	}
	p := &Plugins{opts: opts,
		execute: func(ctx context.Context, e execution) ([]byte, string, error) { return e.run(ctx) }}
	for i := range opts.Config.Providers {
		pl := &plugin{config: opts.Config.Providers[i].DeepCopy(), slots: make(chan struct{}, maxExecutions)}
		for _, glob := range pl.config.MatchImages {
			location, _ := patternOf(glob) // validated
			pl.images = append(pl.images, location)
		}
		p.plugins = append(p.plugins, pl)
	}
	return p, nil
}

// Credentials implements [Source]. It executes the plugins that match the image and have no cached answer, one after
// the other, for up to a minute each. A plugin that fails leaves the others; the error names it, and its error output
// is in the log.
func (p *Plugins) Credentials(ctx context.Context, req Request) ([]Credential, error) {
	var ring keyring
	var errs []error
	for _, pl := range p.plugins {
		if !slices.ContainsFunc(pl.images, func(l string) bool { return locationCovers(l, req.Image) }) {
			continue
		}
		id, ok, err := p.identify(ctx, pl, req.Pod)
		if err == nil && ok {
			var got answer
			if got, err = p.answer(ctx, pl, req.Image, id); err == nil {
				if bad := ring.add(got, nil, id.account); bad != nil {
					err = &NodeError{bad}
				}
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %q: %w", pl.config.Name, err))
		}
	}
	ring.sort()
	return ring.lookup(req.Image), errors.Join(errs...)
}

// answer returns the cached answer of the plugin, or executes it.
func (p *Plugins) answer(ctx context.Context, pl *plugin, image string, id identity) (answer, error) {
	keys := []string{}
	for _, t := range []providerv1.PluginCacheKeyType{providerv1.ImagePluginCacheKeyType,
		providerv1.RegistryPluginCacheKeyType, providerv1.GlobalPluginCacheKeyType} {
		keys = append(keys, cacheKey(t, image, id))
	}
	if got, ok := pl.answers.get(keys...); ok {
		return got, nil
	}
	// The token is bound to a pod. An answer that is not to be cached is not shared between pods.
	run := digest(append([]string{image, id.key, id.token}, pairs(id.annotations)...)...)
	return pl.runs.Do(ctx, "waiting for another execution", run, func(func() int) (answer, error) {
		select {
		case pl.slots <- struct{}{}:
			defer func() { <-pl.slots }()
		case <-ctx.Done():
			return nil, flow.Ended(ctx)
		}
		if got, ok := pl.answers.get(keys...); ok {
			return got, nil
		}
		return p.executeFor(ctx, pl, image, id)
	})
}

// cacheKey returns the key of answers of the type.
func cacheKey(t providerv1.PluginCacheKeyType, image string, id identity) string {
	scope := ""
	switch t {
	case providerv1.ImagePluginCacheKeyType:
		scope = image
	case providerv1.RegistryPluginCacheKeyType:
		scope, _, _ = strings.Cut(image, "/")
	}
	return digest(string(t), scope, id.key)
}

// executeFor executes the plugin, and caches its answer.
func (p *Plugins) executeFor(ctx context.Context, pl *plugin, image string, id identity) (answer, error) {
	input, err := encodeRequest(pl.config.APIVersion, image, id.token, id.annotations)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	output, stderr, err := p.execute(ctx, execution{reader: &p.reader, binDir: p.opts.BinDir, provider: pl.config,
		input: input, timeout: runTimeout})
	took := time.Since(began)
	executed := PluginExecution{Provider: pl.config.Name, Took: took, Err: err}
	p.opts.Measure.Emit(executed)
	var response *providerv1.CredentialProviderResponse
	if err == nil {
		response, err = decodeResponse(output, pl.config.APIVersion)
	}
	if err == nil {
		err = checkEcho(pl.config, response, id.token)
	}
	if err != nil {
		if ctx.Err() == nil {
			p.opts.Logger.Error(err, "A credential provider has failed", "provider", pl.config.Name, "image", image,
				"took", took, "stderr", forLog(stderr, id.token))
		}
		return nil, err
	}
	got := answer{}
	for where, a := range response.Auth {
		got[where] = &dockerEntry{Username: a.Username, Password: a.Password}
	}
	lifetime := pl.config.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		lifetime = response.CacheDuration.Duration
	}
	pl.answers.put(cacheKey(response.CacheKeyType, image, id), got, len(output), lifetime)
	return got, nil
}

// checkEcho returns an error if the plugin returns the token of a pod as a credential that all pods of the service
// account would have.
func checkEcho(config *configv1.CredentialProvider, response *providerv1.CredentialProviderResponse,
	token string) error {
	if token == "" || config.TokenAttributes.CacheType == configv1.TokenServiceAccountTokenCacheType {
		return nil
	}
	for _, a := range response.Auth {
		if a.Password == token {
			return errors.New(
				"it has returned the service account token as a password, which needs the cacheType Token")
		}
	}
	return nil
}

var _ Source = (*Plugins)(nil)

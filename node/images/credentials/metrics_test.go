package credentials

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// A function for measurements that panics harms no pull, and is logged once.
func TestMetricsThatPanic(t *testing.T) {
	r := newRig(t, nil, validProvider())
	r.answer = func(context.Context, string, providerv1.CredentialProviderRequest) (any, error) {
		return answerOf(providerv1.ImagePluginCacheKeyType, &metav1.Duration{}, login1("u")), nil
	}
	r.metrics = flow.Observe("Metrics", func(PluginExecution) { panic("broken") }, r.opts.Logger)
	for range 2 {
		assert.Equal(t, []string{"u"}, r.users(t, "a.example.com/x", nil))
	}
	flow.WaitForObservers(r.metrics)
	require.Len(t, r.lines, 1)
	assert.Contains(t, r.lines[0], "panic: broken")
}

func TestWithoutMetrics(t *testing.T) {
	r := newRig(t, nil, validProvider())
	p, err := NewPlugins(Options{Config: r.opts.Config, BinDir: "/absent"})
	require.NoError(t, err)
	p.execute, r.Plugins = r.execute, p
	r.answer = func(context.Context, string, providerv1.CredentialProviderRequest) (any, error) {
		return answerOf(providerv1.ImagePluginCacheKeyType, nil, login1("u")), nil
	}
	assert.Equal(t, []string{"u"}, r.users(t, "a.example.com/x", nil))
}

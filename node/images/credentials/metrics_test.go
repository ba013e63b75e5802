package credentials

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

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

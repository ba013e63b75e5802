package kubelet

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/images/credentials"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// addProviders adds the credential provider plugins of the settings to the credentials of images, as the last ones. The
// membership of a cluster may be nil.
func addProviders(opts *kubeletkit.Options, s *config.Settings, joins *member, m *metrics, log logr.Logger) error {
	providers, ok, err := s.CredentialProviders()
	if err != nil || !ok || s.Embedded {
		return err
	}
	popts := credentials.Options{Config: providers, BinDir: s.ImageCredentialProviderBinDir,
		Observer: runtime.Observer{Logger: log.WithName("credential-providers")}}
	if joins != nil {
		popts.ServiceAccounts = joins.ServiceAccounts()
	}
	measured, err := prommetrics.NewCredentialProviders(m.registry, providers.Hash)
	if err != nil {
		return err
	}
	popts.Measure = measured.Measure
	plugins, err := credentials.NewPlugins(popts)
	if err != nil {
		return err
	}
	opts.Images.Credentials = credentials.Join(opts.Images.Credentials, plugins)
	return nil
}

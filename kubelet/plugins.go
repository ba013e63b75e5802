package kubelet

import (
	"path/filepath"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// addPlugins adds the registration of plugins, by the handlers of their types.
func addPlugins(opts *kubeletkit.Options, s *config.Settings, handlers map[string]plugins.Handler, m *metrics) error {
	if len(handlers) == 0 {
		return nil
	}
	manager, err := plugins.New(filepath.Join(s.RootDir, "plugins_registry"), handlers, plugins.Options{})
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	registered := func() (sockets []string) {
		for _, p := range manager.Plugins() {
			sockets = append(sockets, p.Socket)
		}
		return sockets
	}
	return prommetrics.RegisterPlugins(m.registry, registered, manager.Sockets)
}

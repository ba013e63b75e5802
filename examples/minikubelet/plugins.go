package main

import (
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// addPlugins adds the registration of plugins, by the handlers of their types, to the agent.
func addPlugins(agent *kubeletkit.Agent, s *config.Settings, handlers map[string]plugins.Handler, m *metrics,
	log logr.Logger) error {
	if len(handlers) == 0 {
		return nil
	}
	manager, err := plugins.New(filepath.Join(s.RootDir, "plugins_registry"), handlers,
		plugins.Options{Logger: log.WithName("plugins")})
	if err != nil {
		return err
	}
	registered := func() (sockets []string) {
		for _, p := range manager.Plugins() {
			sockets = append(sockets, p.Socket)
		}
		return sockets
	}
	if err := prommetrics.RegisterPlugins(m.registry, registered, manager.Sockets); err != nil {
		return err
	}
	return agent.Add("plugins", manager.Run)
}

package main

import (
	"path/filepath"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

// addPodResources adds kubelet's API of what containers hold, for monitors of devices. An agent whose root directory is
// too deep for a socket runs without.
func addPodResources(opts *kubeletkit.Options, s *config.Settings, sources []podresources.Source,
	m *metrics) (*podresources.Server, error) {
	path := filepath.Join(s.RootDir, "pod-resources", "kubelet.sock")
	server, err := podresources.New(path, sources,
		podresources.Options{Request: m.resources.PodResourcesRequested})
	if err != nil {
		return nil, err
	}
	opts.Join = append(opts.Join, server)
	return server, nil
}

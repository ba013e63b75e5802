package kubelet

import (
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

// newPodResources returns kubelet's API of what containers hold, for monitors of devices. An agent whose root directory
// is too deep for a socket runs without.
func newPodResources(s *config.Settings, sources []podresources.Source, m *metrics) (*podresources.Server, error) {
	path := filepath.Join(s.RootDir, "pod-resources", "kubelet.sock")
	return podresources.New(path, sources, podresources.Options{Request: m.podResources.Requested})
}

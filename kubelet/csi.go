package kubelet

import (
	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
)

// hasDrivers reports whether pods can have volumes of CSI drivers: they are objects of a cluster, and the embedded
// runtime has no mounts.
func hasDrivers(s *config.Settings) bool { return s.Kubeconfig != "" && !s.Embedded }

// newStorage adds the plugin of volumes of CSI drivers, which are plugins of the node.
func newStorage(opts *kubeletkit.Options, s *config.Settings, joins *member) (*csi.Plugin, error) {
	p, err := csi.New(joins.Storage(), s.RootDir, csi.Options{})
	if err != nil {
		return nil, err
	}
	opts.Volumes.Persistent = append(opts.Volumes.Persistent, p)
	opts.Join = append(opts.Join, p)
	return p, nil
}

// handleStorage adds the handler of CSI drivers. p may be nil.
func handleStorage(handlers map[string]plugins.Handler, p *csi.Plugin) {
	if p != nil {
		handlers[plugins.TypeCSI] = p
	}
}

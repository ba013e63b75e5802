package kubelet

import (
	"slices"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/intree"
	"github.com/kubeletkit/kubeletkit/node/volume/local"
	"github.com/kubeletkit/kubeletkit/node/volume/nfs"
	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
)

// newStorage adds the plugin of volumes of CSI drivers, which are plugins of the node. nil: the embedder has one of its
// own.
func newStorage(opts *kubeletkit.Options, s *config.Settings, joins *member) (*csi.Plugin, error) {
	if hasPlugin(&opts.Volumes, csi.Name) {
		return nil, nil
	}
	p, err := csi.New(joins.Storage(), s.RootDir, csi.Options{})
	if err != nil {
		return nil, err
	}
	opts.Volumes.Persistent = append(opts.Volumes.Persistent, intree.Wrap(p))
	opts.Join = append(opts.Join, p)
	return p, nil
}

// handleStorage adds the handler of CSI drivers. p may be nil.
func handleStorage(handlers map[string]plugins.Handler, p *csi.Plugin) {
	if p != nil {
		handlers[plugins.TypeCSI] = p
	}
}

// addMounted adds the plugins of volumes that the node mounts by itself: those of NFS servers, and those on disks of
// the node or of a network. One of the embedder with the name of such a plugin replaces it. The embedded runtime has
// no mounts.
func addMounted(opts *kubeletkit.Options, s *config.Settings, iscsi scsi.Options, log logr.Logger) error {
	if s.Embedded {
		return nil
	}
	servers, err := nfs.New(nfs.Options{Logger: log.WithName("nfs")})
	if err != nil {
		return err
	}
	disks, err := local.New(s.RootDir, local.Options{})
	if err != nil {
		return err
	}
	iscsi.Logger = log.WithName("iscsi")
	targets, err := scsi.NewISCSI(s.RootDir, iscsi)
	if err != nil {
		return err
	}
	fibre, err := scsi.NewFC(s.RootDir, scsi.Options{Logger: log.WithName("fc")})
	if err != nil {
		return err
	}
	for _, p := range []volume.PersistentPlugin{servers, disks, targets, fibre} {
		if !hasPlugin(&opts.Volumes, p.Name()) {
			opts.Volumes.Persistent = append(opts.Volumes.Persistent, p)
		}
	}
	return nil
}

// hasPlugin reports whether there is a plugin of the name.
func hasPlugin(opts *volume.Options, name string) bool {
	return slices.ContainsFunc(opts.Persistent,
		func(p volume.PersistentPlugin) bool { return p != nil && p.Name() == name }) ||
		slices.ContainsFunc(opts.Plugins, func(p volume.Plugin) bool { return p != nil && p.Name() == name })
}

package kubelet

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/nfs"
	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
)

// own is a plugin of an embedder in place of that of NFS servers.
type own struct{ volume.PersistentPlugin }

func (own) Name() string { return nfs.Name }

// The plugins of the agent come after those of the embedder, which can replace them.
func TestMountedVolumes(t *testing.T) {
	const disks = "kubernetes.io/local-volume"
	names := func(s *config.Settings, persistent ...volume.PersistentPlugin) (names []string) {
		s.RootDir = "/var/lib/kubelet"
		opts := &kubeletkit.Options{}
		opts.Volumes.Persistent = persistent
		require.NoError(t, addMounted(opts, s, scsi.Options{}, logr.Discard()))
		for _, p := range opts.Volumes.Persistent {
			names = append(names, p.Name())
		}
		return names
	}
	assert.Equal(t, []string{nfs.Name, disks, scsi.ISCSI, scsi.FC}, names(&config.Settings{}))
	assert.Equal(t, []string{nfs.Name, disks, scsi.ISCSI, scsi.FC}, names(&config.Settings{}, own{}), "that of the embedder")
	assert.Empty(t, names(&config.Settings{Embedded: true}), "the embedded runtime has no mounts")
}

package scsi_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
)

// fibre is a machine with an adapter, at which a scan finds disks by the names of their links. If maps is true,
// multipathd joins sda and sdb.
func fibre(t *testing.T, maps bool, links map[string]string) *machine {
	t.Helper()
	m := newMachine(t)
	m.put("", "sys/class/fc_host/host1/node_name")
	m.put("", "sys/class/scsi_host/host1/proc_name")
	m.scanned = func(string) {
		for link, name := range links {
			m.maps = maps && name <= "sdb"
			if _, err := os.Lstat(filepath.Join(m.root, "dev", name)); err != nil {
				m.device(name, filepath.Join(m.files, "0"))
			}
			if m.maps {
				m.put("", "sys/block/dm-0/slaves", name)
			}
			link = filepath.Join(m.root, "dev/disk", link)
			require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
			_ = os.Remove(link)
			require.NoError(t, os.Symlink(filepath.Join(m.root, "dev", name), link))
		}
	}
	return m
}

func (m *machine) fc(root string) *scsi.Plugin {
	p, err := scsi.NewFC(root, scsi.WithMachine(scsi.Options{}, m.run, m.root))
	require.NoError(m, err)
	return p
}

func fcVolume(source v1.FCVolumeSource) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.FC = "pv-1", &source
	return pv
}

func TestFCConformance(t *testing.T) {
	m, root := fibre(t, false, map[string]string{"by-path/fc-0x500a-lun-0": "sda"}), t.TempDir()
	pv := fcVolume(v1.FCVolumeSource{TargetWWNs: []string{"500a"}, Lun: ptr.To[int32](0)})
	volumetest.PersistentSuite(t, volumetest.PersistentFactory{Volume: pv,
		New: restarted(func() *scsi.Plugin { return m.fc(root) })})
	assert.Empty(t, m.list("sys/block"))
	assert.NoDirExists(t, filepath.Join(root, "plugins/kubernetes.io/fc/500a-lun-0"))
}

// Paths and programs are kubelet's.
func TestFCPaths(t *testing.T) {
	m, root := fibre(t, true, map[string]string{"by-path/pci-0000:00:06.0-fc-0x500a-lun-0": "sda",
		"by-path/fc-0x500b-lun-0": "sdb", "by-path/fc-0x500b-lun-0-part1": "sdc", "by-path/fc-0x500b-lun-01": "sdd",
		"by-id/scsi-36_00": "sda"}), t.TempDir()
	for key, source := range map[string]v1.FCVolumeSource{
		"500a-500b-lun-0": {TargetWWNs: []string{"500a", "500b"}, Lun: ptr.To[int32](0)},
		"36_00":           {WWIDs: []string{"36 00"}},
	} {
		pv := fcVolume(source)
		a := newAgent(t, root, m.fc(root), pv)
		a.mustSetUp("web", pv)
		stage := filepath.Join(root, "plugins/kubernetes.io/fc", key)
		calls := m.take()
		assert.Contains(t, calls, `sh -c echo "$1" >"$2" sh - - - /sys/class/scsi_host/host1/scan`)
		assert.Contains(t, calls, "mount -o bind "+stage+" "+filepath.Join(a.dir("web"), "volumes/kubernetes.io~fc/pv-1"))
		require.NoError(t, os.RemoveAll(filepath.Join(a.dir("web"), "plugins")), "as if a kubelet had set it up")
		newAgent(t, root, m.fc(root), pv).remove("web")
		calls = m.take()
		assert.Contains(t, calls, "multipath -f /dev/dm-0")
		assert.Contains(t, calls, `sh -c echo "$1" >"$2" sh 1 /sys/block/sda/device/delete`)
		assert.Contains(t, calls, `sh -c echo "$1" >"$2" sh 1 /sys/block/sdb/device/delete`)
		assert.NotContains(t, calls, `sh -c echo "$1" >"$2" sh 1 /sys/block/sdd/device/delete`)
		assert.NoDirExists(t, stage)
	}
}

func TestFCDevice(t *testing.T) {
	m, root := fibre(t, false, map[string]string{"by-id/scsi-3600": "sda"}), t.TempDir()
	pv := fcVolume(v1.FCVolumeSource{WWIDs: []string{"3600"}})
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	a := newAgent(t, root, m.fc(root), pv)
	bound, err := os.Readlink(a.mustSetUp("web", pv))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(root, "plugins/kubernetes.io/fc/volumeDevices/3600/uid-web"), bound)
	a.remove("web")
	assert.Empty(t, m.list("sys/block"))
}

func TestFCNoDisk(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	m.scanned = func(string) {}
	a := newAgent(t, root, m.fc(root))
	_, err := a.setUp(t.Context(), "web", &v1.FCVolumeSource{})
	require.ErrorContains(t, err, "the volume names no disk")
	synctest.Test(t, func(t *testing.T) {
		_, err := newAgent(t, root, m.fc(root)).setUp(context.WithoutCancel(t.Context()), "db",
			&v1.FCVolumeSource{WWIDs: []string{"3600"}})
		require.ErrorContains(t, err, "no fc disk found: the node has no Fibre Channel adapter (/sys/class/fc_host)")
	})
	a.remove("web")
	a.remove("db")
}

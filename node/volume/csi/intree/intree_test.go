package intree_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/intree"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source has one persistent volume.
type source struct {
	volume.ClaimSource
	pv  *v1.PersistentVolume
	err error
}

func (s source) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	return s.pv, s.err
}

func volumeOf(src v1.PersistentVolumeSource) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.PersistentVolumeSource = "pv-1", src
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "data"}
	return pv
}

func TestClaims(t *testing.T) {
	share := &v1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: "share"}
	for driver, src := range map[string]v1.PersistentVolumeSource{
		"ebs.csi.aws.com":          {AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
		"disk.csi.azure.com":       {AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/d"}},
		"file.csi.azure.com":       {AzureFile: share},
		"cinder.csi.openstack.org": {Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "v"}},
		"pd.csi.storage.gke.io":    {GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "pd"}},
		"pxd.portworx.com":         {PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "v"}},
		"csi.vsphere.vmware.com":   {VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk"}},
	} {
		pv := volumeOf(src)
		before := pv.DeepCopy()
		got, err := intree.Claims(source{pv: pv}).PersistentVolume(t.Context(), "pv-1")
		require.NoError(t, err, driver)
		assert.Equal(t, driver, got.Spec.CSI.Driver)
		assert.Equal(t, "pv-1", got.Name)
		assert.NotEmpty(t, got.Spec.CSI.VolumeHandle)
		assert.Equal(t, before, pv, "the object of the source is not changed")
	}
	for _, src := range []v1.PersistentVolumeSource{{NFS: &v1.NFSVolumeSource{}}, {CSI: &v1.CSIPersistentVolumeSource{}}} {
		pv := volumeOf(src)
		got, err := intree.Claims(source{pv: pv}).PersistentVolume(t.Context(), "pv-1")
		require.NoError(t, err)
		assert.Same(t, pv, got)
	}
	_, err := intree.Claims(source{err: assert.AnError}).PersistentVolume(t.Context(), "pv-1")
	require.ErrorIs(t, err, assert.AnError)
	share.SecretName, share.ShareName = "", ""
	pv := volumeOf(v1.PersistentVolumeSource{AzureFile: share})
	pv.Spec.ClaimRef = nil
	if _, err = intree.Claims(source{pv: pv}).PersistentVolume(t.Context(), "pv-1"); err != nil {
		require.ErrorContains(t, err, "failed to translate in-tree pv to CSI: ")
	}
	assert.Nil(t, intree.Claims(nil))
}

// csiPlugin notes the requests of a plugin for CSI volumes.
type csiPlugin struct {
	volume.PersistentBase
	got []volume.PersistentRequest
}

func (*csiPlugin) Name() string                          { return "kubernetes.io/csi" }
func (*csiPlugin) Supports(pv *v1.PersistentVolume) bool { return pv.Spec.CSI != nil }

func (*csiPlugin) Inline(_ *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	if v.CSI == nil {
		return nil
	}
	return volumeOf(v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: v.CSI.Driver}})
}

func (p *csiPlugin) note(req volume.PersistentRequest) error {
	p.got = append(p.got, req)
	return nil
}

func (p *csiPlugin) Attach(_ context.Context, req volume.PersistentRequest) error { return p.note(req) }
func (p *csiPlugin) Stage(_ context.Context, req volume.PersistentRequest) error  { return p.note(req) }
func (p *csiPlugin) Publish(_ context.Context, req volume.PersistentRequest) (volume.Published, error) {
	return volume.Published{}, p.note(req)
}
func (p *csiPlugin) SupportsSELinuxMount(_ context.Context, req volume.PersistentRequest) (bool, error) {
	return true, p.note(req)
}
func (p *csiPlugin) Expand(_ context.Context, req volume.PersistentRequest) error { return p.note(req) }

// A volume in the spec of a pod that is translated is set up as a persistent volume, others as they are.
func TestInline(t *testing.T) {
	inner := &csiPlugin{}
	p := intree.Wrap(inner)
	same, ok := runtime.Optional[*csiPlugin](p)
	assert.True(t, ok && same == inner, "what the plugin can do beside the interface is not lost")
	pod := &v1.Pod{}
	pod.Namespace = "default"
	disk := &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", FSType: "xfs", ReadOnly: true}}}
	pv := p.Inline(pod, disk)
	assert.Equal(t, "data", pv.Name)
	assert.Equal(t, "ebs.csi.aws.com", pv.Spec.CSI.Driver)
	assert.Equal(t, "vol-1", pv.Spec.CSI.VolumeHandle)
	for _, test := range []struct {
		pv               *v1.PersistentVolume
		inline, readOnly bool
	}{
		{pv, false, true},
		{p.Inline(pod, &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}), true, false},
	} {
		inner.got = nil
		req := volume.PersistentRequest{Pod: pod, Volume: test.pv, Inline: true}
		_, publishErr := p.Publish(t.Context(), req)
		_, err := p.SupportsSELinuxMount(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, errors.Join(p.Attach(t.Context(), req), p.Stage(t.Context(), req), publishErr,
			p.Expand(t.Context(), req)))
		require.Len(t, inner.got, 5)
		for _, got := range inner.got {
			assert.Equal(t, test.inline, got.Inline)
			assert.Equal(t, test.readOnly, got.ReadOnly)
		}
	}
	assert.Nil(t, p.Inline(pod, &v1.Volume{VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}))
	assert.Equal(t, "kubernetes.io/csi", p.Name())
}

func ExampleClaims() {
	disk := volumeOf(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk-1"}})
	pv, err := intree.Claims(source{pv: disk}).PersistentVolume(context.Background(), "pv-1")
	fmt.Println(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle, err)
	// Output: pd.csi.storage.gke.io projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1 <nil>
}

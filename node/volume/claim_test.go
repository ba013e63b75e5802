//go:build unix

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// bindings is a ClaimSource with claim "data" and persistent volume "pv".
type bindings struct {
	volume.ClaimBase
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
	calls atomic.Int32
}

func (b *bindings) Claim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	b.calls.Add(1)
	if b.claim == nil || b.claim.Name != name {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
	}
	return b.claim, nil
}

func (b *bindings) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if b.pv == nil || b.pv.Name != name {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
	}
	return b.pv, nil
}

// bound returns a claim that is bound to the volume.
func bound(src v1.PersistentVolumeSource) *bindings {
	b := &bindings{claim: &v1.PersistentVolumeClaim{}, pv: &v1.PersistentVolume{}}
	b.claim.Namespace, b.claim.Name, b.claim.UID = "default", "data", "c1"
	b.claim.Spec.VolumeName, b.claim.Status.Phase = "pv", v1.ClaimBound
	b.pv.Name, b.pv.Spec.PersistentVolumeSource = "pv", src
	b.pv.Spec.ClaimRef = &v1.ObjectReference{UID: "c1"}
	return b
}

func local(path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}
}

func claimVolume() v1.Volume {
	return v1.Volume{Name: "v",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data",
			ReadOnly: true}}}
}

// A volume that was found is remembered: the API server is not needed any more.
func TestClaims(t *testing.T) {
	for name, src := range map[string]func(dir string) v1.PersistentVolumeSource{
		"local": local,
		"hostPath": func(dir string) v1.PersistentVolumeSource {
			return v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, dir := t.TempDir(), filepath.Join(t.TempDir(), "u1")
			require.NoError(t, os.WriteFile(filepath.Join(disk, "f"), []byte("kept"), 0o600))
			b := bound(src(disk))
			b.pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "1234"}
			p := pod(claimVolume())
			for range 2 {
				m := contentManager(t, volume.Sources{Claims: b})
				ready, err := m.SetUp(t.Context(), p, dir)
				require.NoError(t, err)
				assert.Equal(t, kruntime.Volume{HostPath: disk, ReadOnly: true, Group: ptr.To[int64](1234)}, ready["v"])
				b.claim = nil
			}
			assert.EqualValues(t, 1, b.calls.Load())
			m := contentManager(t, volume.Sources{})
			require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
			assert.NoDirExists(t, dir)
			assert.FileExists(t, filepath.Join(disk, "f"), "the volume stays")
		})
	}
}

// The events of claims that cannot be used have kubelet's texts.
func TestClaimsThatCannotBeUsed(t *testing.T) {
	disk := t.TempDir()
	const unprocessed = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to " +
		"process volumes=[v]: "
	pvc := unprocessed + "error processing PVC default/data: "
	file := filepath.Join(disk, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	onHost := func(b *bindings, typ v1.HostPathType) {
		b.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: file,
			Type: &typ}}
	}
	asDevice := func(p *v1.Pod) {
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
	}
	for name, tc := range map[string]struct {
		spoil       func(b *bindings)
		pod         func(p *v1.Pod)
		want        string
		unsupported bool
	}{
		"no claim":       {spoil: func(b *bindings) { b.claim = nil }, want: pvc + `failed to fetch PVC from API server: persistentvolumeclaims "data" not found`},
		"not bound":      {spoil: func(b *bindings) { b.claim.Status.Phase = v1.ClaimPending }, want: pvc + "PVC is not bound"},
		"without volume": {spoil: func(b *bindings) { b.claim.Spec.VolumeName = "" }, want: pvc + "PVC has empty pvc.Spec.VolumeName"},
		"deleted":        {spoil: func(b *bindings) { b.claim.DeletionTimestamp = &metav1.Time{} }, want: pvc + "PVC is being deleted"},
		"no volume":      {spoil: func(b *bindings) { b.pv = nil }, want: pvc + `failed to fetch PV pv from API server: persistentvolumes "pv" not found`},
		"of no claim": {
			spoil: func(b *bindings) { b.pv.Spec.ClaimRef = nil },
			want: pvc +
				"found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
		},
		"of another claim": {
			spoil: func(b *bindings) { b.pv.Spec.ClaimRef.UID = "c2" },
			want:  pvc + "found PV object pv but its pv.Spec.ClaimRef.UID c2 does not point to claim.UID c1",
		},
		"block": {
			spoil: func(b *bindings) { b.pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			want:  unprocessed + "volume v has volumeMode Block, but is specified in volumeMounts",
		},
		"no block": {spoil: func(*bindings) {}, pod: asDevice, want: unprocessed + "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		"block device": {
			spoil: func(b *bindings) { b.pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			pod:   asDevice, unsupported: true,
			want: unprocessed +
				`failed to get Plugin from volumeSpec for volume "pv" err=no volume plugin matched: volume type not supported: ` +
				"persistent volume of mode Block; block devices need the plugin for them, and a runtime with mounts",
		},
		"other type": {
			spoil: func(b *bindings) {
				b.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
			}, unsupported: true,
			want: unprocessed +
				`failed to get Plugin from volumeSpec for volume "pv" err=no volume plugin matched: volume type not supported: ` +
				"persistent volume of type nfs; volumes of NFS servers need the plugin for them, and a runtime with mounts",
		},
		"leads up": {
			spoil: func(b *bindings) { b.pv.Spec.Local.Path = "/a/../../b" },
			want:  `MountVolume.SetUp failed for volume "pv" : invalid path: /a/../../b must be an absolute path without '..'`,
		},
		"not there": {
			spoil: func(b *bindings) { b.pv.Spec.Local.Path = "/no/such" },
			want:  `MountVolume.NewMounter initialization failed for volume "pv" : path "/no/such" does not exist`,
		},
		"no directory": {
			spoil: func(b *bindings) { b.pv.Spec.Local.Path = file },
			want: fmt.Sprintf(
				`MountVolume.NewMounter initialization failed for volume "pv" : only directory and block device are supported: path %q is neither`, file),
		},
		"options on the host": {
			spoil: func(b *bindings) {
				onHost(b, v1.HostPathFile)
				b.pv.Spec.MountOptions = []string{"noexec"}
			},
			want: `MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not supported for this volume type`,
		},
		"no directory of the host": {
			spoil: func(b *bindings) { onHost(b, v1.HostPathDirectory) },
			want: `MountVolume.SetUp failed for volume "pv" : hostPath type check failed: ` + file +
				" is not a directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, p := bound(local(disk)), pod(claimVolume())
			tc.spoil(b)
			if tc.pod != nil {
				tc.pod(p)
			}
			ready, err := contentManager(t, volume.Sources{Claims: b}).SetUp(t.Context(), p, t.TempDir())
			assert.Equal(t, []string{tc.want}, volume.FailedMounts(p, ready, err))
			require.Len(t, volume.SetUpErrors(err), 1)
			assert.Equal(t, tc.want, volume.SetUpErrors(err)[0].Message())
			assert.Equal(t, tc.unsupported, errors.Is(err, volume.ErrUnsupported))
		})
	}
	_, err := newManager(t).SetUp(t.Context(), pod(claimVolume()), t.TempDir())
	assert.ErrorIs(t, err, volume.ErrUnsupported)
}

// All volumes that cannot be processed are in one event, as in kubelet. The others have one each.
func TestFailedMounts(t *testing.T) {
	claim := func(name, of string) v1.Volume {
		return v1.Volume{Name: name,
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: of}}}
	}
	p := pod(
		claim("z", "gone"), claim("data", "data"), claim("again", "gone"),
		v1.Volume{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
		v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/no/such",
			Type: ptr.To(v1.HostPathDirectory)}}},
	)
	ready, err := contentManager(t, volume.Sources{Claims: bound(local(t.TempDir()))}).SetUp(t.Context(), p,
		t.TempDir())
	assert.Equal(t, []string{
		"Unable to attach or mount volumes: unmounted volumes=[again host nfs z], unattached volumes=[], failed to " +
			"process volumes=[again nfs z]: " +
			`error processing PVC default/gone: failed to fetch PVC from API server: persistentvolumeclaims "gone" not found; ` +
			`failed to get Plugin from volumeSpec for volume "nfs" err=no volume plugin matched: volume type not supported: nfs; volumes of NFS servers need the plugin for them, and a runtime with mounts`,
		`MountVolume.SetUp failed for volume "host" : hostPath type check failed: /no/such is not a directory`,
	}, volume.FailedMounts(p, ready, err))
	assert.Contains(t, ready, "data")
	assert.Empty(t, volume.FailedMounts(p, nil, errors.New("the disk is full")))
	assert.Empty(t, volume.FailedMounts(p, ready, nil))
}

// A persistent volume of another node is refused, and nothing of it is touched.
func TestVolumesOfOtherNodes(t *testing.T) {
	disk, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(disk, 0o700))
	v := claimVolume()
	v.PersistentVolumeClaim.ReadOnly = false
	p := pod(v)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(os.Getgid()))}
	b := bound(local(disk))
	b.pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
		{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{"right"}}}},
	}}}
	labels := map[string]string{v1.LabelHostname: "wrong"}
	m := contentManager(t, volume.Sources{Claims: b, NodeLabels: func() map[string]string { return labels }})
	mode := func() os.FileMode {
		info, err := os.Stat(disk)
		require.NoError(t, err)
		return info.Mode()
	}
	ready, err := m.SetUp(t.Context(), p, dir)
	require.Len(t, volume.SetUpErrors(err), 1)
	assert.Equal(t, `MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`,
		volume.SetUpErrors(err)[0].Message())
	assert.Empty(t, ready)
	assert.Equal(t, os.ModeDir|0o700, mode())

	if goruntime.GOOS != "linux" {
		return // nothing is given to a group there
	}
	labels = map[string]string{v1.LabelHostname: "right"}
	ready, err = m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Equal(t, disk, ready["v"].HostPath)
	assert.Equal(t, os.ModeDir|os.ModeSetgid|0o770, mode(), "it is given to the group")
}

// The claim of an ephemeral volume must have been made for the pod.
func TestEphemeralClaims(t *testing.T) {
	b := bound(local(t.TempDir()))
	b.pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "staff"} // no number: it is ignored
	b.claim.Name = "web-v"
	p := pod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	_, err := contentManager(t, volume.Sources{Claims: b}).SetUp(t.Context(), p, t.TempDir())
	assert.ErrorContains(t, err, "PVC default/web-v was not created for pod default/web (pod is not owner)")
	b.claim.OwnerReferences = []metav1.OwnerReference{{UID: p.UID, Controller: ptr.To(true)}}
	ready, err := contentManager(t, volume.Sources{Claims: b}).SetUp(t.Context(), p, t.TempDir())
	assert.NoError(t, err)
	assert.Nil(t, ready["v"].Group)
}

// A local volume is given to the pod's fsGroup, but nothing that a link in it leads to.
func TestLocalVolumeBelongsToTheGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	disk, outside := t.TempDir(), filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(outside, nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(disk, "a/b"), 0o700))
	file := filepath.Join(disk, "a/b/f")
	require.NoError(t, os.WriteFile(file, nil, 0o400))
	require.NoError(t, os.Symlink(outside, filepath.Join(disk, "link")))
	v := claimVolume()
	v.PersistentVolumeClaim.ReadOnly = false
	p := pod(v)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](2000),
		FSGroupChangePolicy: ptr.To(v1.FSGroupChangeOnRootMismatch)}
	setUp := func() {
		m, dir := contentManager(t, volume.Sources{Claims: bound(local(disk))}), t.TempDir()
		_, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		require.NoError(t, m.TearDown(t.Context(), kruntime.RefOf(p), dir))
	}
	shows := func(path string) string {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		_, gid := ownerOf(t, path)
		if gid != 2000 {
			return info.Mode().String()
		}
		return info.Mode().String() + " group"
	}
	setUp()
	assert.Equal(t, "-rw-rw---- group", shows(file))
	assert.Equal(t, "dgrwxrwx--- group", shows(filepath.Join(disk, "a")))
	assert.Equal(t, "-rw-------", shows(outside))

	require.NoError(t, os.Chmod(file, 0o400))
	setUp()
	assert.Equal(t, "-r-------- group", shows(file), "the directory of the volume has the group")
	p.Spec.SecurityContext.FSGroupChangePolicy = nil
	setUp()
	assert.Equal(t, "-rw-rw---- group", shows(file))
}

// A local volume keeps its group while a pod has it. A second pod with another fsGroup gets it
// with kubelet's warning, also if both are set up at the same time.
func TestLocalVolumeOfTwoPods(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	disk, pods := t.TempDir(), t.TempDir()
	var mu sync.Mutex
	var events []kruntime.Event
	m, err := volume.New(volume.Options{Sources: volume.Sources{Claims: bound(local(disk))},
		Observer: kruntime.Observer{NonBlocking: true, Event: func(e kruntime.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}}})
	require.NoError(t, err)
	of := func(uid string, group int64) *v1.Pod {
		v := claimVolume()
		v.PersistentVolumeClaim.ReadOnly = false
		return testpod.With(pod(v), testpod.UID(types.UID(uid)), func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		})
	}
	setUp := func(p *v1.Pod) {
		ready, err := m.SetUp(t.Context(), p, filepath.Join(pods, string(p.UID)))
		assert.NoError(t, err)
		assert.Equal(t, kruntime.Volume{HostPath: disk, Relabel: true}, ready["v"])
	}
	group := func() int64 {
		_, gid := ownerOf(t, disk)
		return int64(gid)
	}
	first, second := of("u1", 2001), of("u2", 2002)
	var both sync.WaitGroup
	both.Go(func() { setUp(first) })
	both.Go(func() { setUp(second) })
	both.Wait()
	has := group()
	require.Contains(t, []int64{2001, 2002}, has)
	late := second
	if has == 2002 {
		late = first
	}
	require.Len(t, events, 1)
	assert.Equal(t, kruntime.Event{Pod: kruntime.RefOf(late), Type: v1.EventTypeWarning, Reason: "AlreadyMountedVolume",
		Message: fmt.Sprintf(
			"The requested fsGroup is %d, but the volume pv has GID %d. The volume may not be shareable.", 4003-has,
			has)},
		events[0])
	setUp(of("u3", has))
	setUp(of("u3", has)) // as it is remembered
	assert.Len(t, events, 1, "it has the group already")

	for _, uid := range []string{"u1", "u2", "u3"} {
		require.NoError(t, m.TearDown(t.Context(), kruntime.PodRef{UID: types.UID(uid)}, filepath.Join(pods, uid)))
	}
	setUp(of("u4", 2004))
	assert.Equal(t, int64(2004), group(), "no other pod has it any more")
	assert.Len(t, events, 1)
}

// A type that is not supported is named, with what to do.
func TestUnsupportedTypesHaveAdvice(t *testing.T) {
	m := newManager(t)
	for part, source := range map[string]v1.VolumeSource{
		"awsElasticBlockStore; volumes of CSI drivers need a node of a cluster": {
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{}},
		"iscsi; volumes on disks of a network need the plugin for them":            {ISCSI: &v1.ISCSIVolumeSource{}},
		"fc; volumes on disks of a network need the plugin for them":               {FC: &v1.FCVolumeSource{}},
		"rbd; Kubernetes has removed the type; use the CSI driver of Ceph":         {RBD: &v1.RBDVolumeSource{}},
		"cephfs; Kubernetes has removed the type; use the CSI driver of Ceph":      {CephFS: &v1.CephFSVolumeSource{}},
		"glusterfs; Kubernetes has removed the type; use a CSI driver, or an NFS":  {Glusterfs: &v1.GlusterfsVolumeSource{}},
		"storageos; Kubernetes has removed the type; use a CSI driver":             {StorageOS: &v1.StorageOSVolumeSource{}},
		"scaleIO; Kubernetes has removed the type; use a CSI driver":               {ScaleIO: &v1.ScaleIOVolumeSource{}},
		"quobyte; Kubernetes has removed the type; use a CSI driver":               {Quobyte: &v1.QuobyteVolumeSource{}},
		"flocker; Kubernetes has removed the type; use a CSI driver":               {Flocker: &v1.FlockerVolumeSource{}},
		"photonPersistentDisk; Kubernetes has removed the type; use a CSI driver":  {PhotonPersistentDisk: &v1.PhotonPersistentDiskVolumeSource{}},
		"gitRepo; the type is disabled in Kubernetes; use an emptyDir and an init": {GitRepo: &v1.GitRepoVolumeSource{}},
		"flexVolume; the type is deprecated in Kubernetes; use a CSI driver, or":   {FlexVolume: &v1.FlexVolumeSource{}},
	} {
		_, err := m.SetUp(t.Context(), pod(v1.Volume{Name: "v", VolumeSource: source}), t.TempDir())
		require.ErrorIs(t, err, volume.ErrUnsupported)
		require.ErrorContains(t, err, part)
	}
}

package csi_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

func linked(t *testing.T) *rig { return newRig(t, csidriver.Options{Links: true}) }

func TestAccessModes(t *testing.T) {
	type m = csipb.VolumeCapability_AccessMode_Mode
	for _, c := range []struct {
		modes       []v1.PersistentVolumeAccessMode
		multi, want m
	}{
		{nil, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod},
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteMany},
			csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
			csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		for _, isBlock := range []bool{false, true} {
			r := linked(t)
			pv := r.add("data", func(pv *v1.PersistentVolume) { pv.Spec.AccessModes = c.modes })
			if isBlock {
				block(pv)
			}
			pod := r.pod("web", "data")
			r.mustSetUp(pod)
			stage := request[*csipb.NodeStageVolumeRequest](r, "NodeStageVolume")
			assert.Equal(t, c.multi, stage.VolumeCapability.AccessMode.Mode)
			publish := request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume")
			assert.Equal(t, c.multi, publish.VolumeCapability.AccessMode.Mode)
			assert.Equal(t, isBlock, publish.VolumeCapability.GetBlock() != nil)
			r.mustRemove(pod)
			r.opts.NodeCapabilities = without(multiCapability)
			r.restartDriver()
			r.mustSetUp(pod)
			publish = request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume")
			assert.Equal(t, c.want, publish.VolumeCapability.AccessMode.Mode)
			r.mustRemove(pod)
			r.isClean()
		}
	}
}

// The requests have all that the volume, its object, and the attachment contain.
func TestRequests(t *testing.T) {
	for _, isBlock := range []bool{false, true} {
		r := linked(t)
		for _, name := range []string{"stage", "publish", "expand"} {
			r.cluster.addSecret("secrets", name, map[string]string{"key-" + name: secret})
		}
		r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) {
			spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}, {}}
		})
		pv := r.add("data", func(pv *v1.PersistentVolume) {
			pv.Spec.MountOptions = []string{"noatime", "noexec"}
			pv.Spec.CSI.FSType = "ext4"
			pv.Spec.CSI.VolumeAttributes = map[string]string{"pool": "fast"}
			pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "secrets", Name: "stage"}
			pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "secrets", Name: "publish"}
		})
		if isBlock {
			block(pv)
		}
		pod := r.pod("web", "data")
		pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(os.Getgid()))}
		ready := r.mustSetUp(pod)["data"]
		assert.True(t, ready.ReadOnly)
		assert.False(t, ready.Relabel)

		stage := request[*csipb.NodeStageVolumeRequest](r, "NodeStageVolume")
		publish := request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume")
		context := map[string]string{"attached-to": "node"}
		assert.Equal(t, context, stage.PublishContext)
		assert.Equal(t, context, publish.PublishContext)
		assert.Equal(t, map[string]string{"key-stage": secret}, stage.Secrets)
		assert.Equal(t, map[string]string{"pool": "fast"}, stage.VolumeContext)
		assert.True(t, publish.Readonly)
		assert.Equal(t, stage.StagingTargetPath, publish.StagingTargetPath)
		attributes := map[string]string{"pool": "fast", "csi.storage.k8s.io/pod.name": "web",
			"csi.storage.k8s.io/pod.namespace": "default", "csi.storage.k8s.io/pod.uid": "uid-web",
			"csi.storage.k8s.io/serviceAccount.name": "account", "csi.storage.k8s.io/ephemeral": "false"}
		base := filepath.Join(r.root, "plugins/kubernetes.io/csi")
		if isBlock {
			assert.NotNil(t, stage.VolumeCapability.GetBlock())
			assert.Equal(t, filepath.Join(base, "volumeDevices/staging/data"), stage.StagingTargetPath)
			assert.Equal(t, filepath.Join(base, "volumeDevices/publish/data/uid-web"), publish.TargetPath)
			link, err := os.Readlink(ready.HostPath)
			require.NoError(t, err)
			assert.Equal(t, publish.TargetPath, link)
			assert.Equal(t, filepath.Join(r.podDir(pod), "volumeDevices/kubernetes.io~csi/data"), ready.HostPath)
			assert.Equal(t, map[string]string{"key-publish": secret}, publish.Secrets)
		} else {
			attributes["csi.storage.k8s.io/serviceAccount.tokens"] =
				`{"":{"token":"` + secret + `","expirationTimestamp":null},"vault":{"token":"` + secret +
					`vault","expirationTimestamp":null}}`
			mount := publish.VolumeCapability.GetMount()
			assert.Equal(t, "ext4", mount.FsType)
			assert.Equal(t, []string{"noatime", "noexec"}, mount.MountFlags)
			assert.Equal(t, pod.Spec.SecurityContext.FSGroup, ptr.To(number(t, mount.VolumeMountGroup)))
			assert.Equal(t, stage.VolumeCapability.String(), publish.VolumeCapability.String())
			assert.Equal(t, filepath.Join(r.podDir(pod), "volumes/kubernetes.io~csi/data/mount"), publish.TargetPath)
			assert.Equal(t, publish.TargetPath, ready.HostPath)
			assert.Equal(t, map[string]string{"key-publish": secret}, publish.Secrets)
		}
		assert.Equal(t, attributes, publish.VolumeContext)
		assert.Equal(t, map[string]string{"pool": "fast"}, pv.Spec.CSI.VolumeAttributes, "the volume was changed")
		r.mustRemove(pod)
		assert.Equal(t, []string{"Stage data", "Publish data", "Unpublish data", "Unstage data"}, r.calls())
		r.isClean()
	}
}

func number(t *testing.T, text string) (n int64) {
	t.Helper()
	for _, c := range text {
		n = n*10 + int64(c-'0')
	}
	return n
}

func TestTokensInSecrets(t *testing.T) {
	r := linked(t)
	r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) {
		spec.PodInfoOnMount, spec.ServiceAccountTokenInSecrets = nil, ptr.To(true)
		spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	})
	r.add("data")
	pod := r.pod("web", "data")
	r.mustSetUp(pod)
	publish := request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume")
	assert.Empty(t, publish.VolumeContext)
	assert.Contains(t, publish.Secrets["csi.storage.k8s.io/serviceAccount.tokens"], secret+"vault")
	assert.Equal(t, []string{"web vault"}, r.cluster.tokens)
	r.mustRemove(pod)
	r.isClean()
}

func TestInlineRequest(t *testing.T) {
	r := linked(t)
	r.cluster.addSecret("default", "creds", map[string]string{"key": secret})
	v := r.inline("scratch")
	v.CSI.ReadOnly, v.CSI.FSType = ptr.To(true), ptr.To("xfs")
	v.CSI.VolumeAttributes = map[string]string{"size": "1"}
	v.CSI.NodePublishSecretRef = &v1.LocalObjectReference{Name: "creds"}
	pod := r.pod("web")
	r.use(pod, v)
	ready := r.mustSetUp(pod)
	assert.True(t, ready["scratch"].ReadOnly)
	publish := request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume")
	assert.Equal(t, "csi-", publish.VolumeId[:4])
	assert.Len(t, publish.VolumeId, 4+64)
	assert.True(t, publish.Readonly)
	assert.Empty(t, publish.StagingTargetPath)
	assert.Empty(t, publish.PublishContext)
	assert.Equal(t, "xfs", publish.VolumeCapability.GetMount().FsType)
	assert.Equal(t, "true", publish.VolumeContext["csi.storage.k8s.io/ephemeral"])
	assert.Equal(t, "1", publish.VolumeContext["size"])
	assert.Equal(t, map[string]string{"key": secret}, publish.Secrets)
	volumes, _ := r.plugin.VolumesInUse()
	assert.Empty(t, volumes, "inline volumes are not attached")
	r.mustRemove(pod)
	assert.Len(t, r.calls(), 2)
	r.isClean()
}

// Files belong to the group of the pod as the policy of the driver says, or the driver gives them.
func TestGroups(t *testing.T) {
	group := int64(os.Getgid())
	if os.Geteuid() == 0 {
		group = 4711
	}
	for _, c := range []struct {
		name        string
		policy      storagev1.FSGroupPolicy
		fsType      string
		mode        v1.PersistentVolumeAccessMode
		readOnly    bool
		driverGives bool
		inline      bool
		gives       bool
	}{
		{name: "None", policy: storagev1.NoneFSGroupPolicy, fsType: "ext4", mode: v1.ReadWriteOnce},
		{name: "File", policy: storagev1.FileFSGroupPolicy, mode: v1.ReadWriteMany, gives: true},
		{name: "File, read-only", policy: storagev1.FileFSGroupPolicy, mode: v1.ReadWriteMany, readOnly: true},
		{name: "RWO with type", policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, fsType: "ext4",
			mode: v1.ReadWriteOnce, gives: true},
		{name: "RWOP with type", policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, fsType: "ext4",
			mode: v1.ReadWriteOncePod, gives: true},
		{name: "RWX with type", policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, fsType: "ext4",
			mode: v1.ReadWriteMany},
		{name: "RWO without type", policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, mode: v1.ReadWriteOnce},
		{name: "inline with type", policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, fsType: "ext4", inline: true,
			gives: true},
		{name: "no object", fsType: "ext4", mode: v1.ReadWriteOnce, gives: true},
		{name: "the driver gives", policy: storagev1.NoneFSGroupPolicy, mode: v1.ReadWriteOnce, driverGives: true, gives: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := csidriver.Options{Links: os.Geteuid() != 0}
			if !c.driverGives {
				opts.NodeCapabilities = without(groupCapability)
			}
			r := newRig(t, opts)
			r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) { spec.FSGroupPolicy = &c.policy })
			if c.policy == "" {
				r.cluster.mu.Lock()
				delete(r.cluster.drivers, csidriver.DefaultName)
				r.cluster.mu.Unlock()
			}
			var pod *v1.Pod
			if c.inline {
				v := r.inline("data")
				v.CSI.FSType = &c.fsType
				pod = r.pod("web")
				r.use(pod, v)
			} else {
				r.add("data", mode(c.mode), func(pv *v1.PersistentVolume) { pv.Spec.CSI.FSType = c.fsType })
				pod = r.pod("web", "data")
				pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = c.readOnly
			}
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
			path := r.mustSetUp(pod)["data"].HostPath
			info, err := os.Stat(path)
			require.NoError(t, err)
			if os.Geteuid() == 0 { // otherwise it is a link, which is not given
				assert.Equal(t, c.gives, groupOf(info) == group)
			}
			asked := request[*csipb.NodePublishVolumeRequest](r, "NodePublishVolume").VolumeCapability.GetMount()
			assert.Equal(t, c.driverGives, asked.VolumeMountGroup != "")
			r.mustRemove(pod)
			r.isClean()
		})
	}
}

// Each error has kubelet's text, if kubelet has one.
func TestErrors(t *testing.T) {
	message := "MountVolume.%s failed for volume \"data\" : "
	in := func(step, text string) string { return strings.Replace(message, "%s", step, 1) + text }
	attachment := csinode.AttachmentName("handle-data", csidriver.DefaultName, nodeName)
	for _, c := range []struct {
		name, text string
		set        func(r *rig)
		pod        func(r *rig, pod *v1.Pod)
	}{
		{name: "not in use yet", text: in("WaitForAttach", "volume not in use"),
			set: func(r *rig) { r.cluster.attached = errors.New("volume not in use") }},
		{name: "no attachment", text: in("WaitForAttach", "volume handle-data has GET error for volume attachment "+
			attachment+": object \""+attachment+"\" not found"), set: func(r *rig) { delete(r.cluster.attachments, attachment) }},
		{name: "not attached", text: in("WaitForAttach", "volume handle-data is not attached for volume attachment "+
			attachment), set: func(r *rig) { r.cluster.attach(attachment, storagev1.VolumeAttachmentStatus{}) }},
		{name: "attach error", text: in("WaitForAttach", "the disk is away"), set: func(r *rig) {
			r.cluster.attach(attachment, storagev1.VolumeAttachmentStatus{
				AttachError: &storagev1.VolumeError{Message: "the disk is away"}})
		}},
		{name: "being detached", text: in("WaitForAttach", "volume attachment is being deleted"), set: func(r *rig) {
			r.cluster.attachments[attachment].DeletionTimestamp = &v1Now
		}},
		{name: "no driver", text: in("MountDevice", "kubernetes.io/csi: attacher.MountDevice failed to create "+
			"newCsiDriverClient: driver name "+csidriver.DefaultName+" not found in the list of registered CSI drivers"),
			set: func(r *rig) { r.plugin.Deregister(r.registration()) }},
		{name: "no secret of stage", text: in("MountDevice",
			"fetching NodeStageSecretRef ns/s failed: object \"ns/s\" not found"), set: func(r *rig) {
			r.volumes["data"].Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "ns", Name: "s"}
		}},
		{name: "no secret of publish", text: in("SetUp",
			"fetching NodePublishSecretRef ns/s failed: object \"ns/s\" not found"), set: func(r *rig) {
			r.volumes["data"].Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "ns", Name: "s"}
		}},
		{name: "lifecycle", text: in("SetUp", `volume mode "Persistent" not supported by driver `+csidriver.DefaultName+
			` (only supports ["Ephemeral"])`), set: func(r *rig) {
			r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) {
				spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
			})
		}},
		{name: "API server away", text: in("WaitForAttach", "reading the CSIDriver "+csidriver.DefaultName+": away"),
			set: func(r *rig) { r.cluster.setAway(errors.New("away")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := linked(t)
			r.add("data")
			c.set(r)
			pod := r.pod("web", "data")
			_, err := r.setUp(pod)
			assert.ErrorContains(t, err, c.text)
			assert.ErrorContains(t, err, "default/web")
			if c.name == "no driver" {
				assert.Equal(t, []string(nil), r.calls())
			}
			volumes, _ := r.plugin.VolumesInUse()
			assert.LessOrEqual(t, len(volumes), 1)
			r.mustRemove(pod)
			r.isClean()
		})
	}
	t.Run("inline", func(t *testing.T) {
		r := linked(t)
		pod := r.pod("web")
		r.use(pod, r.inline("data"))
		r.cluster.mu.Lock()
		delete(r.cluster.drivers, csidriver.DefaultName)
		r.cluster.mu.Unlock()
		_, err := r.setUp(pod)
		assert.ErrorContains(t, err, in("SetUp", `volume mode "Ephemeral" not supported by driver `+
			csidriver.DefaultName+` (no CSIDriver object)`))
		r.mustRemove(pod)
		r.isClean()
	})
}

// A volume whose driver needs no attachment is not declared to be in use.
func TestAttachRequired(t *testing.T) {
	for _, c := range []struct {
		required *bool
		object   bool
		attaches bool
	}{{ptr.To(false), true, false}, {ptr.To(true), true, true}, {nil, true, true}, {nil, false, true}} {
		r := newRig(t, csidriver.Options{Links: true, Settings: csidriver.Settings{
			ControllerCapabilities: []csipb.ControllerServiceCapability_RPC_Type{}}})
		if c.object {
			r.cluster.change(csidriver.DefaultName, func(spec *storagev1.CSIDriverSpec) { spec.AttachRequired = c.required })
		} else {
			delete(r.cluster.drivers, csidriver.DefaultName)
		}
		r.add("data")
		pod := r.pod("web", "data")
		r.cluster.attached = errors.New("volume not in use")
		_, err := r.setUp(pod)
		assert.Equal(t, c.attaches, err != nil)
		volumes, _ := r.plugin.VolumesInUse()
		assert.Equal(t, c.attaches, len(volumes) == 1)
		r.cluster.attached = nil
		r.mustSetUp(pod)
		r.restart() // what is in use is read from disk
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			volumes, known := r.plugin.VolumesInUse()
			assert.True(collect, known)
			assert.Equal(collect, c.attaches, len(volumes) == 1)
		}, 10*time.Second, time.Millisecond)
		r.mustRemove(pod)
		r.isClean()
	}
}

package storage

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestNew(t *testing.T) {
	_, err := New(nil, "", nil, Options{})
	require.EqualError(t, err, "storage: the client is nil\nthe name of the node is empty\nthere are no tokens")
	onNode(t, func(r *rig) {
		r.after(time.Second)
		require.ErrorIs(r, r.storage.Run(r.Context()), runtime.ErrAlreadyRunning)
	})
}

func driverObject(name string) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: new(false), PodInfoOnMount: new(true), RequiresRepublish: new(true),
		TokenRequests:        []storagev1.TokenRequest{{Audience: "a"}},
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
	}}
}

func TestDriver(t *testing.T) {
	onNode(t, func(r *rig) {
		want := driverObject("csi.example.com")
		r.api.Put("csidrivers", want)
		r.after(time.Minute)
		assert.Empty(r, r.requests(), "nothing needs a driver")
		got, err := r.storage.Driver(r.Context(), "csi.example.com")
		require.NoError(r, err)
		assert.Equal(r, want.Spec, got.Spec)
		assert.Equal(r, "csi.example.com", got.Name)
		_, err = r.storage.Driver(r.Context(), "other")
		assert.True(r, apierrors.IsNotFound(err))
		assert.EqualError(r, err, `csidriver.storage.k8s.io "other" not found`)
		r.api.Put("csidrivers", driverObject("other"))
		r.after(0)
		_, err = r.storage.Driver(r.Context(), "other")
		require.NoError(r, err)

		r.setAway(true)
		r.restart()
		got, err = r.storage.Driver(r.Context(), "csi.example.com")
		require.NoError(r, err)
		assert.Equal(r, want.Spec, got.Spec)

		r.disk = &apitest.Disk{}
		r.restart()
		_, err = r.storage.Driver(r.Context(), "csi.example.com")
		require.ErrorIs(r, err, ErrNotRead)
		r.refuse(func(req *apitest.Request) error {
			return apierrors.NewNotFound(storagev1.Resource(req.Resource), "")
		})
		r.after(time.Minute)
		_, err = r.storage.Driver(r.Context(), "csi.example.com")
		require.ErrorIs(r, err, ErrNotRead)
		assert.False(r, apierrors.IsNotFound(err), "of the list, not of the object")
	})
}

func attachment(name string, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: "node"},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached,
			AttachmentMetadata: map[string]string{"device": "/dev/vdb"}}}
}

func TestAttachment(t *testing.T) {
	deleted := attachment("a", true)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"attacher"}
	for name, test := range map[string]struct {
		object *storagev1.VolumeAttachment
		between,
		after func(r *rig)
		kept bool
	}{
		"attached":      {object: attachment("a", true), kept: true},
		"not attached":  {object: attachment("a", false)},
		"being deleted": {object: deleted},
		"forgotten":     {object: attachment("a", true), between: func(r *rig) { r.storage.Forget("a") }},
		"gone": {object: attachment("a", true), between: func(r *rig) {
			r.api.Remove("volumeattachments", "", "a")
			_, err := r.storage.Attachment(r.Context(), "a")
			assert.True(r, apierrors.IsNotFound(err))
		}},
		"detached": {object: attachment("a", true), between: func(r *rig) {
			r.api.Put("volumeattachments", attachment("a", false))
			got, err := r.storage.Attachment(r.Context(), "a")
			require.NoError(r, err)
			assert.False(r, got.Status.Attached)
		}},
		"refused": {object: attachment("a", true), kept: true, between: func(r *rig) {
			r.refuse(forbidden)
			_, err := r.storage.Attachment(r.Context(), "a")
			assert.True(r, apierrors.IsForbidden(err), "%v", err)
		}},
		"too large": {object: func() *storagev1.VolumeAttachment {
			large := attachment("a", true)
			large.Status.AttachmentMetadata["large"] = string(make([]byte, maxKeptSize))
			return large
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				r.api.Put("volumeattachments", test.object)
				got, err := r.storage.Attachment(r.Context(), "a")
				require.NoError(r, err)
				assert.Equal(r, test.object.Status, got.Status)
				if test.between != nil {
					test.between(r)
				}
				for _, again := range []string{"in this run", "after a restart"} {
					r.setAway(true)
					got, err = r.storage.Attachment(r.Context(), "a")
					if test.kept {
						require.NoError(r, err, again)
						assert.Equal(r, test.object.Status, got.Status, again)
					} else {
						require.ErrorIs(r, err, errAway, again)
						assert.False(r, apierrors.IsNotFound(err))
					}
					r.restart()
				}
			})
		})
	}
}

// A server that hangs delays a pod for seconds, and the end of the pod's context ends the read.
func TestServerThatHangs(t *testing.T) {
	onNode(t, func(r *rig) {
		r.api.Put("volumeattachments", attachment("a", true))
		_, err := r.storage.Attachment(r.Context(), "a")
		require.NoError(r, err)
		r.api.Before(apitest.Hang)
		began := time.Now()
		_, err = r.storage.Attachment(r.Context(), "a")
		require.NoError(r, err)
		assert.Equal(r, keptTimeout, time.Since(began))
		_, err = r.storage.Attachment(r.Context(), "b")
		require.Error(r, err)
	})
}

func TestSecret(t *testing.T) {
	onNode(t, func(r *rig) {
		secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "key"},
			Data: map[string][]byte{"key": []byte("value")}}
		r.api.Put("secrets", secret)
		got, err := r.storage.Secret(r.Context(), "ns", "key")
		require.NoError(r, err)
		assert.Equal(r, secret.Data, got.Data)
		_, err = r.storage.Secret(r.Context(), "ns", "other")
		assert.True(r, apierrors.IsNotFound(err))
		assert.EqualError(r, err, `secrets "other" not found`)

		r.setAway(true)
		r.restart()
		got, err = r.storage.Secret(r.Context(), "ns", "key")
		require.NoError(r, err)
		assert.Equal(r, secret.Data, got.Data)
		_, err = r.storage.Secret(r.Context(), "ns", "other")
		require.ErrorIs(r, err, errAway)

		r.setAway(false)
		r.api.Remove("secrets", "ns", "key")
		_, err = r.storage.Secret(r.Context(), "ns", "key")
		assert.True(r, apierrors.IsNotFound(err))
		r.after(2 * time.Second)
		assert.Equal(r, "null", r.disk.Kept("volumesecrets"))
	})
}

// What is kept is dropped after pods have gone, if nothing uses it any more.
func TestRecheck(t *testing.T) {
	used, unused := csinode.AttachmentName("used", "d", "node"), csinode.AttachmentName("unused", "d", "node")
	onNode(t, func(r *rig) {
		for _, name := range []string{used, unused} {
			r.api.Put("volumeattachments", attachment(name, true))
			_, err := r.storage.Attachment(r.Context(), name)
			require.NoError(r, err)
		}
		for _, name := range []string{"used", "refused", "gone"} {
			r.api.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
			_, err := r.storage.Secret(r.Context(), "ns", name)
			require.NoError(r, err)
		}
		r.restart()
		r.storage.Retain(nil)
		r.after(5 * time.Minute)
		r.api.Remove("secrets", "ns", "gone")
		refuse := func(req *apitest.Request) error {
			if req.Name == "refused" {
				return forbidden(req)
			}
			return nil
		}
		r.refuse(refuse)
		node := r.object()
		node.Status.VolumesAttached = []v1.AttachedVolume{{Name: csinode.UniqueName("d", "used")}, {Name: "other"}}
		r.api.Put("nodes", node)
		r.register()
		r.after(10 * time.Minute)
		kept := func() (keys []string) {
			keys = append(r.storage.attachments.readBefore(time.Now()), r.storage.secrets.readBefore(time.Now())...)
			return keys
		}
		assert.ElementsMatch(r, []string{used, "ns/refused", "ns/used"}, kept(), "refused once")
		r.after(20 * time.Minute)
		assert.ElementsMatch(r, []string{used, "ns/used"}, kept())

		r.requests()
		r.after(time.Hour)
		assert.Empty(r, r.requests(), "no pod has gone")
		r.setAway(true)
		r.storage.Update(nil, []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u"}}})
		r.after(time.Hour)
		assert.ElementsMatch(r, []string{used, "ns/used"}, kept(), "the API server is away")

		r.setAway(false)
		node.Status.VolumesAttached = nil
		r.api.Put("nodes", node)
		r.register()
		r.after(20 * time.Minute)
		assert.Equal(r, []string{"ns/used"}, kept(), "it was detached")
	})
}

func TestToken(t *testing.T) {
	onNode(t, func(r *rig) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"},
			Spec: v1.PodSpec{ServiceAccountName: "robot"}}
		status, err := r.storage.Token(r.Context(), pod, "audience", new(int64(600)))
		require.NoError(r, err)
		assert.Equal(r, "of ns/robot", status.Token)
		_, err = r.storage.Token(r.Context(), pod, "", nil)
		require.NoError(r, err)
		bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "u"}
		assert.Equal(r, []*authenticationv1.TokenRequest{
			{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"audience"}, ExpirationSeconds: new(int64(600)),
				BoundObjectRef: bound}},
			{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}},
		}, r.tokens.requests)
		r.tokens.err = errors.New("no account")
		_, err = r.storage.Token(r.Context(), pod, "", nil)
		require.ErrorIs(r, err, r.tokens.err)
	})
}

func TestAttached(t *testing.T) {
	volume, other := csinode.UniqueName("d", "v"), csinode.UniqueName("d", "w")
	pod := func(uid string) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}} }
	onNode(t, func(r *rig) {
		set := func(inUse []v1.UniqueVolumeName, attached ...v1.AttachedVolume) {
			node := r.object()
			node.Status.VolumesInUse, node.Status.VolumesAttached = inUse, attached
			r.api.Put("nodes", node)
			r.register()
		}
		check := func(want error, pods ...string) {
			r.Helper()
			for _, uid := range pods {
				require.ErrorIs(r, r.storage.Attached(r.Context(), volume, pod(uid)), want)
			}
		}
		check(ErrNotRead, "a")
		assert.Empty(r, r.takeSynced())
		set(nil)
		assert.Equal(r, []string{"a"}, r.takeSynced())
		check(ErrNotInUse, "a", "b")
		set([]v1.UniqueVolumeName{other}, v1.AttachedVolume{Name: volume})
		assert.Empty(r, r.takeSynced(), "nothing has changed for the volume")
		check(ErrNotInUse, "a")
		set([]v1.UniqueVolumeName{other, volume})
		assert.Equal(r, []string{"a", "b"}, r.takeSynced())
		check(ErrNotAttached, "a", "b", "c")
		assert.EqualError(r, r.storage.Attached(r.Context(), volume, pod("c")),
			`volume not attached according to node status: "kubernetes.io/csi/d^v"`)
		r.storage.Update(nil, []*v1.Pod{pod("b")})
		set([]v1.UniqueVolumeName{volume}, v1.AttachedVolume{Name: volume})
		assert.Equal(r, []string{"a", "c"}, r.takeSynced())
		check(nil, "a", "c")
		set(nil)
		assert.Empty(r, r.takeSynced(), "they do not wait")

		check(ErrNotInUse, "a", "b")
		r.storage.Retain([]*v1.Pod{pod("b")})
		set([]v1.UniqueVolumeName{volume}, v1.AttachedVolume{Name: volume})
		assert.Equal(r, []string{"b"}, r.takeSynced())
		assert.Empty(r, r.storage.waiting)
	})
}

// While the node object is not known, a volume is attached whose attachment is kept.
func TestAttachedWithoutTheAPIServer(t *testing.T) {
	volume := csinode.UniqueName("d", "v")
	onNode(t, func(r *rig) {
		name := csinode.AttachmentName("v", "d", "node")
		r.api.Put("volumeattachments", attachment(name, true))
		_, err := r.storage.Attachment(r.Context(), name)
		require.NoError(r, err)
		r.setAway(true)
		r.restart()
		require.NoError(r, r.storage.Attached(r.Context(), volume, &v1.Pod{}))
		require.ErrorIs(r, r.storage.Attached(r.Context(), csinode.UniqueName("d", "w"), &v1.Pod{}), ErrNotRead)
		require.ErrorIs(r, r.storage.Attached(r.Context(), "example.com/v", &v1.Pod{}), ErrNotRead)
		r.register()
		require.ErrorIs(r, r.storage.Attached(r.Context(), volume, &v1.Pod{}), ErrNotInUse, "the node object counts")
	})
}

// All methods are called at the same time.
func TestConcurrency(t *testing.T) {
	volume := csinode.UniqueName("d", "v")
	onNode(t, func(r *rig) {
		r.api.Put("volumeattachments", attachment("a", true))
		r.api.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "key"}})
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
		var calls sync.WaitGroup
		for _, call := range []func(){
			func() { _, _ = r.storage.Driver(r.Context(), "d") },
			func() { _, _ = r.storage.Attachment(r.Context(), "a") },
			func() { _, _ = r.storage.Secret(r.Context(), "ns", "key") },
			func() { r.storage.Forget("a") },
			func() { _ = r.storage.Attached(r.Context(), volume, pod) },
			func() { _ = r.storage.Install(r.Context(), disk) },
			func() { _ = r.storage.Install(r.Context(), csinode.Driver{Name: disk.Name, NodeID: "other"}) },
			func() { _ = r.storage.Uninstall(r.Context(), disk.Name) },
			func() { _ = r.storage.Ready() },
			func() { r.storage.Update(nil, []*v1.Pod{pod}) },
			func() { r.storage.Retain([]*v1.Pod{pod}) },
			func() { r.storage.NodeChanged(r.object()) },
			func() {
				node := r.object()
				node.UID += "x"
				r.storage.NodeChanged(node)
			},
		} {
			calls.Go(func() {
				for range 20 {
					call()
				}
			})
		}
		calls.Wait()
		r.register()
		r.after(5 * time.Minute)
		require.NoError(r, r.storage.Install(r.Context(), disk))
		assert.Equal(r, map[string]string{"csi.example.com": "i-1"}, driversOf(r.csiNode()))
		assert.Equal(r, types.UID("uid-1"), r.csiNode().OwnerReferences[0].UID)
	})
}

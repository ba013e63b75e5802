package volume

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PersistentPlugin sets up persistent volumes of one type. The [Reconciler] finds the persistent volume behind a claim,
// checks it, and calls the plugin in the order Attach, Stage, Publish for a pod that uses the volume, and Unpublish,
// Unstage when the pod is gone. A volume is published once for each pod, staged once for the node before its first
// publication, and unstaged after its last one.
//
// Each method is idempotent: it is called again after an error, after a restart of the agent, and if the agent ended in
// the middle of it. Calls of Attach, Stage, Publish, Expand, Unpublish and Unstage for one key, or for one place if
// [PersistentPlugin.PerPod], never overlap; all other calls do. What is on disk is the state. A panic becomes an error.
// Embed [PersistentBase], so that methods added later do not break the plugin. Package volumetest tests
// implementations.
type PersistentPlugin interface {
	// Name is the plugin's name, a qualified name such as "example.com/nfs", which no [Plugin] has. It must stay the
	// same over restarts of the agent.
	Name() string
	// PerPod reports that pods share nothing of a volume. Stage and Unstage are not called, and a call for one pod,
	// which may wait for a server, does not delay those for others.
	PerPod() bool
	// Supports reports whether the plugin sets up the persistent volume. It does not block, but may read what is at the
	// path of a volume of the type local.
	Supports(pv *v1.PersistentVolume) bool
	// Inline returns a persistent volume for a volume in the spec of a pod if the plugin supports its type, and nil
	// otherwise. It has the name of the volume. If pods do not share it, its key has the UID of the pod. It does not
	// block.
	Inline(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume
	// Key names the storage behind the volume: persistent volumes with the same key are the same storage, which is
	// staged once.
	Key(pv *v1.PersistentVolume) string
	// Find returns the key of the volume at the place from what is on disk, also what a kubelet has left there. It is
	// empty if nothing of the volume needs the plugin. Find does not call what may not answer.
	Find(place Place) (key string, err error)
	// Published returns the volume at the place if it is ready for containers now, as far as can be seen without a call
	// of what may not answer, and nil otherwise. Containers of a pod whose volume cannot be set up again, since its
	// server is away, are started with it.
	Published(place Place) (*Published, error)
	// Attach returns nil if the storage is attached to the node. If it is not yet, the error says what the pod waits
	// for. The plugin has the pod synced when that changes; without that, the call is repeated after a back-off.
	Attach(ctx context.Context, req PersistentRequest) error
	// Stage makes the storage ready for all pods of the node. Before it changes what only the plugin can undo, it
	// records on disk at req.Place what Find returns the key from.
	Stage(ctx context.Context, req PersistentRequest) error
	// Publish makes the volume ready for the pod at req.Place.
	Publish(ctx context.Context, req PersistentRequest) (Published, error)
	// Unpublish undoes Publish. What is still mounted at req.Place is unmounted after it. It is also called for a pod
	// whose volume did not get that far, if this agent has called Attach for it.
	Unpublish(ctx context.Context, req UnpublishRequest) error
	// Unstage undoes Stage and Attach. No pod uses the storage any more; the request is that of the last one. It is
	// also called if this agent has called Attach, and Find returns nothing. If PerPod, Unpublish undoes Attach.
	Unstage(ctx context.Context, req UnpublishRequest) error
	// SupportsSELinuxMount reports whether the volume can be mounted with an SELinux label for all of its files. It is
	// called if SELinux is on, unless PerPod.
	SupportsSELinuxMount(ctx context.Context, req PersistentRequest) (bool, error)
	// SELinuxMountLabel returns the label that the volume at the place is mounted with, empty if with none, from what
	// Stage and Publish have recorded on disk, also those of a kubelet. found means that there is a record.
	SELinuxMountLabel(place Place) (label string, found bool, err error)
	// Expand makes the file system of a published volume, or its device, as large as the storage. req.Volume has the
	// new size. Its error wraps [ErrInfeasible] or [ErrInUse] if another attempt is of no use, [ErrFinal] if one is and
	// none is under way, and [ErrUnsupported] if the plugin cannot do it: that is a failure if the controller has left
	// it to the node.
	Expand(ctx context.Context, req PersistentRequest) error
	// Stats returns the usage of a published volume. Its error wraps [ErrUnsupported] if the file system of the volume
	// is to be measured instead, and [fs.ErrNotExist] if the volume is not published.
	Stats(ctx context.Context, place Place) (statsv1alpha1.FsStats, error)
	// MeasuredName returns the name of the plugin in measurements of the volume with the key. Empty is that of Name.
	MeasuredName(key string) string
}

// PersistentRequest is the input of the methods of a [PersistentPlugin] for a pod.
type PersistentRequest struct {
	// Pod and Volume must not be changed. Volume has the name, the UID and the spec of when it was first set up for the
	// pod, and no labels or annotations. Its capacity follows expansions.
	Pod    *v1.Pod
	Volume *v1.PersistentVolume
	// Inline means that the volume is in the spec of the pod, and Volume was made by [PersistentPlugin.Inline].
	Inline bool
	// ReadOnly means that the pod has requested the volume read-only.
	ReadOnly bool
	// Block means that containers use the volume as a device.
	Block bool
	// Shared means that another pod may have the volume, if this pod has an fsGroup.
	Shared bool
	// SELinuxLabel is what Stage and Publish mount the volume with, as the mount option context. All pods of the volume
	// have the same. If it is empty, the runtime labels the files, see [runtime.Volume].Relabel.
	SELinuxLabel string
	// Place is that of the volume in the directory of the pod. Its directories of state exist.
	Place
}

// UnpublishRequest is the input of [PersistentPlugin.Unpublish] and [PersistentPlugin.Unstage]. There is no spec: it
// may be gone.
type UnpublishRequest struct {
	// Pod may have a UID only.
	Pod runtime.PodRef
	// Key is that of the volume.
	Key string
	Place
}

// Published is a volume that is ready for a pod.
type Published struct {
	runtime.Volume
	// FSGroup means that the files in the volume are to belong to the fsGroup of the pod. The [Reconciler] gives them
	// to it, as the change policy of the pod says, before a container starts.
	FSGroup bool
	// Republish means that Publish is called again in each sync of the pod.
	Republish bool
}

// PersistentBase is a [PersistentPlugin] without staging, for volumes that are mounted for each pod. It supports no
// volume and publishes none: Name, Supports and Publish are the plugin's own.
type PersistentBase struct{}

// PerPod implements [PersistentPlugin]. It returns false.
func (PersistentBase) PerPod() bool { return false }

// Inline implements [PersistentPlugin]. It returns nil.
func (PersistentBase) Inline(*v1.Pod, *v1.Volume) *v1.PersistentVolume { return nil }

// Key implements [PersistentPlugin]. It returns the name of the persistent volume.
func (PersistentBase) Key(pv *v1.PersistentVolume) string { return pv.Name }

// Find implements [PersistentPlugin]. The key is the name of the persistent volume, which is in the path.
func (PersistentBase) Find(place Place) (string, error) { return filepath.Base(place.Dir), nil }

// Published implements [PersistentPlugin]. The volume is ready if something is mounted at place.Dir.
func (PersistentBase) Published(place Place) (*Published, error) {
	mounted, err := place.Mounted()
	if err != nil || !mounted {
		return nil, err
	}
	return &Published{Volume: runtime.Volume{HostPath: place.Dir}}, nil
}

// Attach implements [PersistentPlugin]. It does nothing.
func (PersistentBase) Attach(context.Context, PersistentRequest) error { return nil }

// Stage implements [PersistentPlugin]. It does nothing.
func (PersistentBase) Stage(context.Context, PersistentRequest) error { return nil }

// Unpublish implements [PersistentPlugin]. It does nothing: what is mounted is unmounted after it.
func (PersistentBase) Unpublish(context.Context, UnpublishRequest) error { return nil }

// Unstage implements [PersistentPlugin]. It does nothing.
func (PersistentBase) Unstage(context.Context, UnpublishRequest) error { return nil }

// SupportsSELinuxMount implements [PersistentPlugin]. It returns false.
func (PersistentBase) SupportsSELinuxMount(context.Context, PersistentRequest) (bool, error) {
	return false, nil
}

// SELinuxMountLabel implements [PersistentPlugin]. There is no record.
func (PersistentBase) SELinuxMountLabel(Place) (string, bool, error) { return "", false, nil }

// Expand implements [PersistentPlugin]. It returns [ErrUnsupported].
func (PersistentBase) Expand(context.Context, PersistentRequest) error { return ErrUnsupported }

// MeasuredName implements [PersistentPlugin]. It is empty.
func (PersistentBase) MeasuredName(string) string { return "" }

// Stats implements [PersistentPlugin]. It returns [ErrUnsupported].
func (PersistentBase) Stats(context.Context, Place) (statsv1alpha1.FsStats, error) {
	return statsv1alpha1.FsStats{}, ErrUnsupported
}

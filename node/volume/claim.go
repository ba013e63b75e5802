package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ClaimSource finds claims and the persistent volumes behind them. It reports no changes, because a node of a cluster
// may not watch them: a pod whose claim cannot be used is tried again at its next sync, and the claim of a volume that
// can be expanded is read every minute. It is safe for concurrent use. What it returns is shared and must not be
// changed.
type ClaimSource interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// UpdateStatus writes what differs in the status of two versions of a claim, and returns the result. It fails if
	// the claim has changed since the old version was read.
	UpdateStatus(ctx context.Context, old, updated *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error)
}

// ClaimBase is a [ClaimSource] without claims: its methods return [ErrUnsupported]. Embed it in implementations, so
// that methods added later do not break them. Without UpdateStatus, no volume is expanded.
type ClaimBase struct{}

var _ ClaimSource = ClaimBase{}

// Claim implements [ClaimSource].
func (ClaimBase) Claim(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
	return nil, ErrUnsupported
}

// PersistentVolume implements [ClaimSource].
func (ClaimBase) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	return nil, ErrUnsupported
}

// UpdateStatus implements [ClaimSource].
func (ClaimBase) UpdateStatus(_ context.Context, old, _ *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return old, ErrUnsupported
}

// Claim is the [Plugin] for persistent volumes, through claims and ephemeral claims. The plugins of Options.Persistent
// are tried first. Otherwise it sets up those of the types hostPath and local itself. A local volume must be a
// directory. With mount options it is mounted in the directory of the pod, which needs CAP_SYS_ADMIN and Linux 5.12.
// Which volume is behind a claim is looked up once for each pod, and then remembered, as it does not change.
//
// The default plugin of a [Reconciler] has locks that its pods share: one pod at a time gives a local
// volume to its fsGroup, and a path has one check under way. A Claim that a plugin makes or embeds
// itself has no such locks, and no plugins for other types.
type Claim struct{ Sources }

var _ Plugin = Claim{}

// Name returns the plugin's name.
func (Claim) Name() string { return "kubernetes.io/persistent-claim" }

// Supports reports whether the volume is a claim.
func (Claim) Supports(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// boundFile is the file in the state of a claim that has its boundVolume.
const boundFile = "volume"

// boundVolume is what is remembered of a claim.
type boundVolume struct {
	Path     string          `json:"path"`
	Type     v1.HostPathType `json:"type,omitempty"`
	ReadOnly bool            `json:"readOnly,omitempty"`
	// Host means that the volume is one of the type hostPath.
	Host bool `json:"host,omitempty"`
	// Local means that the volume is one of the type local.
	Local bool `json:"local,omitempty"`
	// Options are the mount options of a volume of the type local.
	Options []string `json:"options,omitempty"`
	// Group is a supplemental group of the containers.
	Group *int64 `json:"group,omitempty"`
	// Name is that of the persistent volume. Earlier versions did not remember it.
	Name string `json:"name,omitempty"`
	// Plugin is the name of the [PersistentPlugin] that sets up the volume, Volume what it needs of the volume, and
	// Block whether it is a device.
	Plugin string               `json:"plugin,omitempty"`
	Volume *v1.PersistentVolume `json:"volume,omitempty"`
	Block  bool                 `json:"block,omitempty"`

	// claim is what the volume was found by, nil if it was remembered.
	claim *v1.PersistentVolumeClaim
}

// maxStateFile is the limit for a file of the state of a volume, in bytes. Paths have up to 4 KiB
// (PATH_MAX), and a volume of an API server up to 1.5 MiB, which JSON can make six times as long.
const maxStateFile = 16 << 20

// readBound returns what is remembered. A file that cannot be used is written again.
func readBound(file string) (b boundVolume, found bool) {
	data, err := safefile.ReadFile(file, maxStateFile)
	if err != nil || json.Unmarshal(data, &b) != nil || b.Path == "" && b.Volume == nil {
		return boundVolume{}, false
	}
	return b, true
}

// write writes the file in one step.
func (b boundVolume) write(file string, before steps) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := before.step("write the volume's file"); err != nil {
		return err
	}
	return safefile.Write(file, data)
}

// SetUp finds the volume, checks that it is there, and gives a local volume to the fsGroup of
// the pod. A volume of the host that was there once for the pod is an [OutdatedError] when it is
// not, see [HostPath]. A local volume must stay there: a runtime may make an empty directory where
// its disk was mounted.
func (p Claim) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	file := filepath.Join(req.StateDir, boundFile)
	bound, found := readBound(file)
	if !found {
		var err error
		if bound, err = p.find(ctx, req.Pod, req.Volume); err != nil {
			return runtime.Volume{}, err
		}
	}
	if bound.Name == "" {
		bound.Name = req.Volume.Name
	}
	if bound.Volume != nil {
		return p.setUpByPlugin(ctx, req, bound, found, file)
	}
	ready := runtime.Volume{HostPath: bound.Path, ReadOnly: bound.ReadOnly, Relabel: bound.Local && !bound.ReadOnly,
		Group: bound.Group}
	if err := p.checks.do(ctx, bound.Path, bound.check); err != nil {
		if found && bound.Host {
			return ready, &OutdatedError{err}
		}
		return runtime.Volume{}, err
	}
	if !found {
		if err := p.take(ctx, req, bound, file); err != nil {
			return runtime.Volume{}, &mountError{step: "SetUp", volume: bound.Name, err: err}
		}
	}
	if len(bound.Options) > 0 {
		if err := bound.mount(req.Place); err != nil {
			return runtime.Volume{}, &mountError{step: "SetUp", volume: bound.Name, err: err}
		}
		ready.HostPath = req.Dir
	}
	return ready, nil
}

// setUpByPlugin has the plugin of the volume set it up, and remembers the volume before that.
func (p Claim) setUpByPlugin(ctx context.Context, req SetUpRequest, bound boundVolume, found bool,
	file string) (runtime.Volume, error) {
	i := -1
	if p.persistent != nil {
		i = slices.IndexFunc(p.persistent.plugins, func(p PersistentPlugin) bool { return p.Name() == bound.Plugin })
	}
	if i < 0 {
		return runtime.Volume{}, unsupported(bound.Name, "persistent volume of the plugin "+bound.Plugin)
	}
	if !found {
		if err := bound.write(file, p.before); err != nil {
			return runtime.Volume{}, &mountError{step: "SetUp", volume: bound.Name, err: err, block: bound.Block}
		}
	}
	plugin, persistent := p.persistent.plugins[i], PersistentRequest{Pod: req.Pod, Volume: bound.Volume,
		ReadOnly: bound.ReadOnly, Block: bound.Block, Place: PlaceOf(req.podDir(), bound.Plugin, bound.Name)}
	ready, err := p.persistent.setUp(ctx, plugin, persistent, req.Volume.Name)
	if err == nil {
		held := bound.Volume.Spec.Capacity[v1.ResourceStorage]
		if size := p.expand(ctx, plugin, persistent, bound.claim); size.Cmp(held) > 0 {
			bound.Volume = withCapacity(bound.Volume, size)
			// If it fails, a volume of several nodes is expanded again, which does nothing.
			_ = bound.write(file, p.before)
		}
	}
	ready.ReadOnly = ready.ReadOnly || bound.ReadOnly
	if bound.Group != nil {
		ready.Group = bound.Group
	}
	return ready, err
}

// take gives the volume to the pod, and remembers that.
func (p Claim) take(ctx context.Context, req SetUpRequest, bound boundVolume, file string) error {
	unlock, err := lockPath(ctx, p.paths, bound.Path)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.before.step("give the volume"); err != nil {
		return err
	}
	if err := p.give(ctx, req, bound); err != nil {
		return fmt.Errorf("giving %s to the fsGroup: %w", bound.Path, err)
	}
	return bound.write(file, p.before)
}

// mount mounts the volume with its options, unless it is mounted. The manager unmounts it.
func (b boundVolume) mount(place Place) error {
	mounted, err := place.Mounted()
	if err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(place.Dir, 0o750); err != nil {
		return err
	}
	if err := bindWith(b.Path, place.Dir, b.Options); err != nil {
		return fmt.Errorf("mounting %s with the options %s: %w", b.Path, strings.Join(b.Options, ","), err)
	}
	return nil
}

// check checks that the volume is there. The texts are kubelet's.
func (b boundVolume) check(ctx context.Context) error {
	if !b.Local {
		if err := checkHostPath(ctx, b.Path, b.Type); err != nil {
			return &mountError{step: "SetUp", volume: b.Name, err: err}
		}
		return nil
	}
	info, err := os.Stat(b.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("path %q does not exist", b.Path)
	case err == nil && mounting.IsBlockDevice(info.Mode()):
		err = fmt.Errorf("path %q is a block device: only a directory is supported on this node; mount the device, "+
			"and use its mount point as the path", b.Path)
	case err == nil && !info.IsDir():
		err = fmt.Errorf("only directory and block device are supported: path %q is neither", b.Path)
	}
	if err != nil {
		return &mountError{step: "NewMounter initialization", volume: b.Name, err: err}
	}
	return nil
}

// TearDown does nothing: the manager removes what was remembered, and the volume stays.
func (Claim) TearDown(context.Context, TearDownRequest) error { return nil }

// find returns the volume behind a claim.
func (p Claim) find(ctx context.Context, pod *v1.Pod, v *v1.Volume) (boundVolume, error) {
	bound, pv, err := p.process(ctx, pod, v)
	if err != nil {
		return bound, &processError{err}
	}
	if err := p.seLinux.checkLabels(pod, v.Name, pv); err != nil {
		return bound, &processError{err}
	}
	if err := p.checkAffinity(pv); err != nil {
		return bound, err
	}
	if bound.Host && len(bound.Options) > 0 {
		return bound, &mountError{step: "MountOptionSupport check", volume: pv.Name,
			err: errors.New("mount options are not supported for this volume type")}
	}
	if bound.Volume != nil {
		return bound, nil
	}
	if !filepath.IsAbs(bound.Path) || slices.Contains(strings.Split(bound.Path, "/"), "..") {
		return bound, &mountError{step: "SetUp", volume: pv.Name,
			err: fmt.Errorf("invalid path: %s must be an absolute path without '..'", bound.Path)}
	}
	return bound, nil
}

// process finds the persistent volume of a claim. The texts of the errors are those of kubelet's
// populator (createVolumeSpec).
func (p Claim) process(ctx context.Context, pod *v1.Pod, v *v1.Volume) (boundVolume, *v1.PersistentVolume, error) {
	var bound boundVolume
	name := pod.Name + "-" + v.Name // of an ephemeral claim (API reference, EphemeralVolumeSource)
	if v.PersistentVolumeClaim != nil {
		name, bound.ReadOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
	}
	fail := func(err error) (boundVolume, *v1.PersistentVolume, error) {
		return bound, nil, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if p.Claims == nil {
		return fail(fmt.Errorf("%w: %s; this agent has no source of claims", ErrUnsupported, typeOf(v)))
	}
	claim, err := p.Claims.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return fail(fmt.Errorf("failed to fetch PVC from API server: %w", err))
	}
	bound.claim = claim
	if err := checkClaim(claim); err != nil {
		return fail(err)
	}
	if v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod) {
		return bound, nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace,
			claim.Name, pod.Namespace, pod.Name)
	}
	pv, err := p.Claims.PersistentVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return fail(fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err))
	}
	switch ref := pv.Spec.ClaimRef; {
	case ref == nil:
		return fail(fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound "+
			"to the claim", pv.Name))
	case ref.UID != claim.UID:
		return fail(fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s",
			pv.Name, ref.UID, claim.UID))
	}
	if bound.Block, err = checkMode(pv, pod, v.Name); err != nil {
		return bound, nil, err
	}
	plugin, err := p.pluginOf(ctx, pv)
	if err != nil {
		return bound, nil, err
	}
	if plugin != nil {
		bound.readFor(plugin, pv)
		return bound, pv, nil
	}
	if bound.Block {
		return bound, nil, unsupported(pv.Name, "persistent volume of mode Block")
	}
	return bound, pv, bound.read(pv)
}

// pluginOf returns the plugin of a persistent volume, or nil. A plugin may read what is at the path of a local volume.
func (p Claim) pluginOf(ctx context.Context, pv *v1.PersistentVolume) (PersistentPlugin, error) {
	if pv.Spec.Local == nil || p.persistent == nil {
		return p.persistent.pluginOf(pv), nil
	}
	found := make(chan PersistentPlugin, 1) // of one, so that a call that stays behind ends
	err := p.checks.do(ctx, pv.Spec.Local.Path, func(context.Context) error {
		return runtime.Recover(func() error {
			found <- p.persistent.pluginOf(pv)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}

// readFor reads what is remembered of a volume that a plugin sets up.
func (b *boundVolume) readFor(plugin PersistentPlugin, pv *v1.PersistentVolume) {
	b.Name, b.Plugin, b.Volume = pv.Name, plugin.Name(), &v1.PersistentVolume{Spec: *pv.Spec.DeepCopy()}
	b.Volume.Name, b.Volume.UID = pv.Name, pv.UID
	b.Volume.Spec.MountOptions = mountOptions(pv)
	b.readGroup(pv)
}

// readGroup reads the supplemental group of a persistent volume.
func (b *boundVolume) readGroup(pv *v1.PersistentVolume) {
	if gid, err := strconv.ParseInt(pv.Annotations[gidAnnotation], 10, 64); err == nil {
		b.Group = &gid
	}
}

// checkMode checks that the containers mount a volume with a file system, and use one without as a device.
func checkMode(pv *v1.PersistentVolume, pod *v1.Pod, volume string) (block bool, err error) {
	block = pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
	var mounted, device bool
	for _, c := range podspec.Containers(&pod.Spec) {
		mounted = mounted || slices.ContainsFunc(c.VolumeMounts,
			func(m v1.VolumeMount) bool { return m.Name == volume })
		device = device || slices.ContainsFunc(c.VolumeDevices,
			func(d v1.VolumeDevice) bool { return d.Name == volume })
	}
	switch {
	case block && mounted:
		return block, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", volume)
	case device && !block:
		return block, fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", volume)
	}
	return block, nil
}

// checkAffinity checks that the node affinity of the volume matches the labels of the node
// (CheckNodeAffinity of component-helpers/storage/volume, which depends on client-go).
func (p Claim) checkAffinity(pv *v1.PersistentVolume) error {
	if p.NodeLabels == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: p.NodeLabels()}}
	matches, err := nodeaffinity.NewLazyErrorNodeSelector(pv.Spec.NodeAffinity.Required).Match(node)
	if err == nil && !matches {
		err = errors.New("no matching NodeSelectorTerms")
	}
	if err != nil {
		return &mountError{step: "NodeAffinity check", volume: pv.Name, err: err}
	}
	return nil
}

// protection keeps a claim while pods use it.
const protection = "kubernetes.io/pvc-protection"

func checkClaim(c *v1.PersistentVolumeClaim) error {
	switch {
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, protection):
		return errors.New("PVC is being deleted")
	case c.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case c.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// gidAnnotation of a persistent volume is the group that may use it (kubelet:
// VolumeGidAnnotationKey). As in kubelet, a value that is no number is ignored.
const gidAnnotation = "pv.beta.kubernetes.io/gid"

// mountOptions returns the mount options of a persistent volume in the order in which kubelet
// applies them (MountOptionFromSpec).
func mountOptions(pv *v1.PersistentVolume) []string {
	options := slices.Clone(pv.Spec.MountOptions)
	if old, ok := pv.Annotations[v1.MountOptionAnnotation]; ok {
		options = strings.Split(old, ",")
	}
	options = slices.DeleteFunc(options, func(o string) bool { return o == "" })
	slices.Sort(options)
	return slices.Compact(options)
}

// read reads the place, the mount options and the group of a persistent volume.
func (b *boundVolume) read(pv *v1.PersistentVolume) error {
	b.Name, b.Options = pv.Name, mountOptions(pv)
	b.readGroup(pv)
	switch {
	case pv.Spec.HostPath != nil:
		b.Path, b.Host = pv.Spec.HostPath.Path, true
		if pv.Spec.HostPath.Type != nil {
			b.Type = *pv.Spec.HostPath.Type
		}
	case pv.Spec.Local != nil:
		b.Path, b.Type, b.Local = pv.Spec.Local.Path, v1.HostPathDirectory, true
	default:
		return unsupported(pv.Name, "persistent volume of type "+typeOfPersistent(pv))
	}
	return nil
}

func typeOfPersistent(pv *v1.PersistentVolume) string {
	src := reflect.ValueOf(pv.Spec.PersistentVolumeSource)
	for i := range src.NumField() {
		if !src.Field(i).IsNil() {
			name, _, _ := strings.Cut(src.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "none"
}
